"""Text of LLVM as it is written: what is left out is what LLVM itself would compute, and equal values are one."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import pytest

from stator.tile.cpu.build import Loaded
from stator.tile.cpu.code import Code, Maker
from stator.tile.cpu.folding import compared, folded

TYPES = ("i1", "i8", "i16", "i32", "i64")
OPERATORS = ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ugt")
X = "%x"


def numbers(type_: str) -> list[str]:
    """Some constants of a type, as LLVM spells them."""
    if type_ == "i1":
        return ["true", "false"]
    bits = int(type_[1:])
    edges = [0, 1, 2, -1, -2, 1 << (bits - 1), (1 << (bits - 1)) - 1, -(1 << (bits - 1)), (1 << bits) - 1]
    return list(map(str, [*edges, *[random.Random(bits).getrandbits(bits) for _ in range(3)]]))


def instructions() -> Iterator[tuple[str, str, str | None, Callable[[], str | None]]]:
    """A type, what is computed as text, and what is written in place of it, for operands that are x or a constant."""
    for type_ in TYPES:
        for a, b in itertools.product([X, *numbers(type_)], repeat=2):
            for name in OPERATORS:
                if type_ != "i1" or name in ("and", "or", "xor"):
                    shifts_out = name in ("shl", "lshr", "ashr") and (b == X or not 0 <= int(b) < int(type_[1:]))
                    if not shifts_out:
                        yield (
                            type_,
                            f"{name} {type_} {a}, {b}",
                            type_,
                            lambda n=name, t=type_, p=(a, b): folded(n, t, p),
                        )
            for predicate in PREDICATES:
                text = f"icmp {predicate} {type_} {a}, {b}"
                yield type_, text, None, lambda n=predicate, t=type_, p=(a, b): compared(n, t, *p)


def test_what_is_folded_is_what_llvm_computes() -> None:
    """Of every operator on every pair of operands, for all of which one function tells whether some x differs."""
    by_type: dict[str, list[tuple[str, str, str]]] = {type_: [] for type_ in TYPES}
    count = 0
    for type_, text, result, fold in instructions():
        count += 1
        found = fold()
        if found is not None:
            by_type[type_].append((text, result or "i1", found))
    assert 0.3 * count < sum(map(len, by_type.values())) < count
    for type_, each in by_type.items():
        lines = [f"define i1 @differs({type_} %x) {{"]
        seen = "false"
        for number, (text, result, found) in enumerate(each):
            lines += [f"  %a{number} = {text}", f"  %d{number} = icmp ne {result} %a{number}, {found}"]
            lines.append(f"  %s{number} = or i1 {seen}, %d{number}")
            seen = f"%s{number}"
        loaded = Loaded("\n".join([*lines, f"  ret i1 {seen}", "}"]), "differs")
        kind: Any = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
                     "i64": ctypes.c_int64}[type_]  # fmt: skip
        differs = ctypes.CFUNCTYPE(ctypes.c_bool, kind)(loaded.address)
        for value in (0, 1, -1, 77, -128, *[random.Random(value).getrandbits(63) for value in range(20)]):
            assert not differs(value), f"{type_}: {value}"


def written() -> tuple[Code, Maker]:
    code = Code()
    return code, Maker(code, 0)


def test_what_only_computes_is_written_once_in_a_block() -> None:
    code, m = written()
    first = m.op("add", "i32", "%x", "%y")
    assert m.op("add", "i32", "%x", "%y") == first and m.op("add", "i32", "%y", "%x") != first
    assert m.intrinsic("smax", "i32", "%x", first) == m.intrinsic("smax", "i32", "%x", first)
    assert code.value("load i32, ptr %p") != code.value("load i32, ptr %p")
    with code.when("%c"):
        inner = m.op("add", "i32", "%x", "%y")
        assert inner != first
    assert m.op("add", "i32", "%x", "%y") not in (first, inner)  # neither is known to be there


def test_what_stands_before_everything_is_known_everywhere() -> None:
    code, m = written()
    late = m.op("mul", "i32", "%x", "%z")
    lines, code.lines = code.lines, code.entry
    early = m.op("add", "i32", "%x", "%y")
    assert m.op("mul", "i32", "%x", "%z") != late  # which comes behind it
    code.lines = lines
    code.block("next")
    assert m.op("add", "i32", "%x", "%y") == early


@pytest.mark.parametrize(
    ("there", "back", "small", "large"),
    [("fpext", "fptrunc", "half", "float"), ("zext", "trunc", "i8", "i32"), ("sext", "trunc", "i8", "i32")],
)
def test_there_and_back_is_nothing(there: str, back: str, small: str, large: str) -> None:
    code, m = written()
    wide = m.convert(there, small, large, "%x")
    assert m.convert(back, large, small, wide) == "%x" and len(code.lines) == 1
    narrow = m.convert(back, large, small, "%y")
    assert m.convert(there, small, large, narrow) not in ("%y", narrow)  # which rounds, or loses bits


@pytest.mark.parametrize("width", [0, 8])
def test_constants_are_those_of_their_type(width: int) -> None:
    """Vectors are not folded; their text is one of LLVM's all the same."""
    code = Code()
    m = Maker(code, width)
    sizes = [m.convert("sext", "i8", "i32", m.number("i8", 200)), m.convert("trunc", "i32", "i8", m.number("i32", -56))]
    assert width or sizes == ["-56", "-56"]
    m.select(m.compare("slt", "i8", m.number("i8", 200), m.number("i8", 1)), "i32", m.number("i32", 1), sizes[0])
    text = "\n".join(["define void @f() {", *code.lines, "  ret void", "}"])
    llvm.parse_assembly(text).verify()
