"""Decoding agrees with `dis`, covers the standard library's code, and caches without keeping code alive."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dis
import gc
import inspect
import types
import typing
import weakref
from collections.abc import Iterator

import pytest

from stator.bytecode import decode as module
from stator.bytecode.decode import _exception_table, decode, slot_names
from stator.bytecode.opcodes import OPCODES

LIBRARY = (argparse, ast, contextlib, dis, inspect, typing)


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


@pytest.fixture(scope="module")
def corpus() -> list[types.CodeType]:
    found = [code for source in LIBRARY for code in codes(compile(inspect.getsource(source), source.__name__, "exec"))]
    assert len(found) > 800
    return found


def test_operands_are_resolved(corpus: list[types.CodeType]) -> None:
    for code in corpus:
        decoded = decode(code)
        count = len(decoded.instructions)
        for name, arg in decoded.instructions:
            assert name in OPCODES
            if name.startswith(("JUMP", "POP_JUMP")) or name in ("FOR_ITER", "SEND"):
                assert 0 <= arg < count
            elif name in ("LOAD_ATTR", "LOAD_GLOBAL", "STORE_ATTR"):
                assert arg in code.co_names
            elif name in ("LOAD_FAST", "STORE_FAST", "LOAD_DEREF"):
                assert 0 <= arg < len(decoded.slot_names)
            elif name == "MAKE_FUNCTION":
                assert isinstance(arg[0], types.CodeType)
            elif name == "CALL_KW":
                assert arg[0] >= len(arg[1]) > 0


def test_exception_tables_agree_with_dis(corpus: list[types.CodeType]) -> None:
    handlers = 0
    for code in corpus:
        expected = [
            (entry.start // 2, entry.end // 2, entry.target // 2, entry.depth, entry.lasti)
            for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        ]
        handlers += len(expected)
        assert list(_exception_table(code.co_exceptiontable)) == expected
    assert handlers > 100


def test_slot_names_agree_with_the_interpreter(corpus: list[types.CodeType]) -> None:
    for code in corpus:
        names = slot_names(code)
        assert names == tuple(code._varname_from_oparg(slot) for slot in range(len(names)))  # type: ignore[attr-defined]


def test_lines_agree_with_dis(corpus: list[types.CodeType]) -> None:
    for code in corpus[:200]:
        decoded = decode(code)
        lines = {instruction.positions.lineno for instruction in dis.get_instructions(code) if instruction.positions}
        mine = {decoded.position(index).line for index in range(len(decoded.instructions))}
        assert mine <= lines


def test_loop_targets_stand_after_the_loop() -> None:
    def program(items: list[int]) -> int:
        total = 0
        for item in items:
            total += item
        return total

    decoded = decode(program.__code__)
    (target,) = [arg for name, arg in decoded.instructions if name == "FOR_ITER"]
    assert [name for name, _ in decoded.instructions[target : target + 2]] == ["LOAD_FAST", "RETURN_VALUE"]
    assert "FOR_ITER" in decoded.text()


@pytest.mark.usefixtures("few_objects")
def test_decoded_is_kept_with_the_code() -> None:
    def program() -> int:
        return 1

    assert decode(program.__code__) is decode(program.__code__)
    fresh = program.__code__.replace(co_name="fresh")
    key, alive = id(fresh), weakref.ref(fresh)
    decode(fresh)
    assert key in module._decoded
    del fresh
    gc.collect()
    assert alive() is None
    assert key not in module._decoded
