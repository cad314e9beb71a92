"""Encoding is the inverse of decoding, for the standard library's code and for every name of the vocabulary."""

from __future__ import annotations

import argparse
import ast
import asyncio.base_events
import asyncio.streams
import contextlib
import dataclasses
import inspect
import typing
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import pytest
from bytecode import Bytecode, CompilerFlags, Instr

from stator.bytecode import v311, v312, v313
from stator.bytecode.decode import VERSION, decode
from stator.bytecode.encode import CELL, FAST, JUMPS, Item, body, instruction, slots_of
from stator.bytecode.flow import layouts
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import OPCODES

LIBRARY = (argparse, ast, asyncio.base_events, asyncio.streams, contextlib, dataclasses, inspect, typing)

#: What the running Python never has in a code object's own text.
INTERNAL = {"EXIT_INIT_CHECK", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "RESERVED"}


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes(const)


def compiled(module: ModuleType) -> list[CodeType]:
    return list(codes(compile(inspect.getsource(module), module.__name__, "exec")))


def again(code: CodeType) -> CodeType:
    """The code, decoded and encoded."""
    items: list[Item] = []
    if code.co_freevars:
        items.append(Instr("COPY_FREE_VARS", len(code.co_freevars), lineno=code.co_firstlineno))
    items.append(Instr("RESUME", 0, lineno=code.co_firstlineno))
    made = Bytecode([*items, *body(decode(code), slots_of(code)).items])
    made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
    made.kwonlyargcount = code.co_kwonlyargcount
    made.argnames = list(code.co_varnames)
    made.cellvars, made.freevars = list(code.co_cellvars), list(code.co_freevars)
    made.flags = CompilerFlags(code.co_flags)
    made.name, made.filename, made.first_lineno = code.co_name, code.co_filename, code.co_firstlineno
    return made.to_code(stacksize=code.co_stacksize + 4, compute_exception_stack_depths=False)


def neutral(decoded: Decoded) -> tuple[list[Any], list[Any], list[Any]]:
    """Instructions, handlers and positions; slots by name, jumps counted without the closure's copying."""
    skipped = [index for index, (name, _) in enumerate(decoded.instructions) if name == "COPY_FREE_VARS"]

    def moved(index: int) -> int:
        return index - sum(skip < index for skip in skipped)

    found, positions = [], []
    for index, (name, arg) in enumerate(decoded.instructions):
        if index in skipped:
            continue
        if name in FAST or name in CELL:
            arg = decoded.slot_names[arg]
        elif name in JUMPS:
            arg = moved(arg)
        found.append((name, type(arg), arg))
        positions.append(decoded.position(index))
    blocks = [b._replace(start=moved(b.start), end=moved(b.end), target=moved(b.target)) for b in decoded.blocks]
    return found, [block for block in blocks if block.start < block.end], positions


@pytest.mark.parametrize("module", LIBRARY, ids=lambda module: module.__name__)
def test_round_trip(module: ModuleType) -> None:
    count = 0
    for code in compiled(module):
        before, after = neutral(decode(code)), neutral(decode(again(code)))
        assert before == after, code.co_qualname
        count += 1
    assert count > 50


def test_code_that_was_encoded_runs() -> None:
    """A module executed from encoded code, generators and classes included, works as the original does."""
    codes_of: dict[CodeType, CodeType] = {}

    def deep(code: CodeType) -> CodeType:
        consts = tuple(deep(const) if isinstance(const, CodeType) else const for const in code.co_consts)
        codes_of[code] = made = again(code.replace(co_consts=consts))
        return made

    namespace: dict[str, Any] = {"__name__": "stator_test_ast"}
    exec(deep(compile(inspect.getsource(ast), ast.__file__, "exec")), namespace)
    tree = ast.parse(inspect.getsource(inspect))
    assert len(codes_of) > 100
    assert namespace["unparse"](tree) == ast.unparse(tree)
    assert namespace["dump"](tree) == ast.dump(tree)
    assert [type(node) for node in namespace["walk"](tree)] == [type(node) for node in ast.walk(tree)]


def test_every_name_is_encoded_or_internal() -> None:
    encoded = set().union(*(version.VERSION.encodings for version in (v311, v312, v313)))
    directions = {name for name in encoded if "_BACKWARD" in name or name == "JUMP_FORWARD"}
    assert set(OPCODES) - INTERNAL == encoded - directions
    reachable = set(VERSION.encodings)
    assert reachable >= set(OPCODES) - INTERNAL - {
        "LOAD_SUPER_ATTR", "LOAD_FAST_AND_CLEAR", "END_SEND", "CLEANUP_THROW", "STOPITERATION_ERROR", "CONVERT_VALUE",
        "LOAD_LOCALS", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "TYPE_PARAMETERS",
    }  # fmt: skip


@pytest.mark.parametrize("module", LIBRARY, ids=lambda module: module.__name__)
def test_the_stack_is_as_deep_as_the_compiler_says(module: ModuleType) -> None:
    deepest = 0
    for code in compiled(module):
        if not code.co_flags & CompilerFlags.OPTIMIZED:
            continue
        found = layouts(decode(code))
        most = max(len(layout) for layout in found if layout is not None)
        assert most <= code.co_stacksize + 1  # what one real instruction does may be two here
        deepest = max(deepest, most)
        assert all(layout == () for layout in found[:1])
    assert deepest > 5


def test_one_instruction() -> None:
    (made,) = instruction("BUILD_LIST", 2)
    assert (made.name, made.arg) == ("BUILD_LIST", 2)
    assert [each.name for each in instruction("CALL", 1)][-1] == "CALL"
