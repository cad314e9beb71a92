"""What operands of several types give: the table of Triton's rules, of tensors and of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stator.tile.language as tl
from stator.tile.errors import InvalidUse
from stator.tile.interpret.eager import EagerBuilder
from stator.tile.language.context import Context, entered

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "or": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "<": operator.lt, "==": operator.eq, "max": tl.maximum, "min": tl.minimum,
    "where": lambda a, b: tl.where(tl.full([4], 1, tl.int1), a, b),
}  # fmt: skip
TYPES = {"i": "int", "u": "uint", "f": "fp", "b": "bf"}

#: Operands, an operator and what comes of it; a number stands for itself.
TABLE = """
i32 + i32 = i32 | i8 + i16 = i16 | i64 + i8 = i64 | u8 + i8 = u8 | u8 + i16 = i16 | u32 + i32 = u32 | i64 + u32 = i64
i1 + i1 = i1 | i1 + i8 = i8 | i1 + u8 = u8 | i32 + f16 = f16 | i64 + b16 = f32 | i64 + f32 = f32 | i8 + f64 = f64
f16 + f16 = f16 | f16 + b16 = f16 | b16 + b16 = b16 | b16 + f32 = f32 | f16 + f32 = f32 | f32 + f64 = f64
f16 / f16 = f32 | b16 / b16 = f32 | f16 / i32 = f32 | f32 / f16 = f32 | i32 / i32 = f32 | i64 / i64 = f32
f64 / f16 = f64
i8 / i64 = f32 | i32 / u32 = ! | i32 // i32 = i32 | i8 // i64 = i64 | u8 // u32 = u32 | i32 // u32 = ! | f32 // f32 = !
f16 % f16 = f32 | i32 % i64 = i64 | i32 % u32 = ! | f32 % i32 = f32
i32 & i64 = i64 | u8 or i8 = u8 | i1 & i1 = i1 | i1 ^ i32 = i32 | f32 & i32 = ! | i32 << i8 = i32 | i8 >> i64 = i64
i32 < f16 = i1 | u8 == i8 = i1 | f8e5 < f8e5 = i1 | f8e5 + f8e4nv = f16 | f8e5 + f8e5 = ! | f8e5 + f16 = f16
i32 + 1 = i32 | i8 + 1 = i8 | i8 + 127 = i8 | i8 + 128 = ! | i8 + -129 = ! | u8 + 255 = u8 | u8 + -1 = ! | i64 + 1 = i64
1 + i16 = i16 | f16 + 1 = f16 | f16 + 0.5 = f16 | b16 * 0.5 = b16 | i32 + 0.5 = f32 | i8 * 0.5 = f32 | i1 + 1 = i32
i1 + 0.5 = f32 | f32 + 1e300 = f32 | i32 + 1e300 = f64 | u64 + 1 = u64 | i32 + 2147483648 = !
f16 / 2 = f32 | 2 / i32 = f32
i32 / 2 = f32 | i32 // 2 = i32 | 7 // i8 = i8 | i16 % 3 = i16 | b16 / 2 = f32 | f64 / 2 = f64 | i32 & 255 = i32
u8 << 1 = u8 | i32 >> 31 = i32 | i8 < 300 = i1 | u8 < -1 = i1 | f16 < 0.1 = i1 | i32 == 2147483648 = i1
i8 max 1 = i32 | i16 max i8 = i16 | b16 max b16 = f32 | b16 min 0.5 = f32 | f16 max 0.5 = f32 | f16 max f16 = f16
i32 min 3 = i32 | u8 max u16 = u16 | f32 min i32 = f32
i32 where 0 = i32 | f16 where 0.0 = f16 | i8 where i16 = i16 | b16 where f32 = f32 | 1 where 0.5 = f32 | 1 where 2 = i32
"""


def rows() -> Iterator[Any]:
    for text in TABLE.replace("\n", " | ").split(" | "):
        parts = text.split()
        if parts:
            yield pytest.param(*parts[:3], parts[-1], id=text.strip().replace(" ", ""))


def operand(text: str) -> Any:
    if text[0] in "-0123456789":
        return float(text) if "." in text or "e" in text else int(text)
    return tl.full([4], 1, dtype(text)) if not text.startswith("f8") else tl.full([4], 1, tl.float32).to(dtype(text))


def dtype(text: str) -> Any:
    return tl.dtype("fp8" + text[2:] if text.startswith("f8") else TYPES[text[0]] + text[1:])


@pytest.fixture(autouse=True)
def context() -> Iterator[Context]:
    with entered(Context(EagerBuilder(), call=lambda f, args: f(*args), direct=True)) as found:
        yield found


@pytest.mark.parametrize(("left", "op", "right", "result"), list(rows()))
def test_types_of_results(left: str, op: str, right: str, result: str) -> None:
    a, b = operand(left), operand(right)
    if result == "!":
        with pytest.raises(InvalidUse):
            OPERATORS[op](a, b)
        return
    found = OPERATORS[op](a, b)
    assert found.dtype == dtype(result) and list(found.type.shape) == [4]


def test_the_table_is_read() -> None:
    assert len(list(rows())) > 95


#: A number → the type that it has alone.
NUMBERS = {
    0: tl.int32, -1: tl.int32, 2**31 - 1: tl.int32, 2**31: tl.uint32, 2**32: tl.int64, -(2**31) - 1: tl.int64,
    2**63: tl.uint64, 0.5: tl.float32, 1e-40: tl.float64, 1e39: tl.float64, float("inf"): tl.float32,
}  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_types_of_numbers(number: float) -> None:
    found = tl.to_tensor(number)
    assert found.dtype == NUMBERS[number]
    assert float(found) == number and tl.to_tensor(True).dtype == tl.int1


def test_numbers_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(InvalidUse, match="more than 64 bits"):
        tl.to_tensor(2**64)


#: A reduction → what it gives for each dtype.
REDUCTIONS = {
    tl.sum: {"i1": "u32", "i8": "i32", "u8": "u32", "i16": "i32", "i64": "i64", "f16": "f16", "b16": "b16"},
    tl.max: {"i8": "i32", "u16": "i32", "i64": "i64", "f16": "f32", "b16": "f32", "f64": "f64"},
    tl.cumsum: {"i8": "i32", "u8": "u32", "f16": "f16", "b16": "f32"},
    tl.cumprod: {"i32": "i32", "b16": "f32", "f16": "f16"},
    tl.argmin: {"f16": "i32", "b16": "i32", "i8": "i32"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "given", "result"),
    [(function, given, result) for function, kinds in REDUCTIONS.items() for given, result in kinds.items()],
)
def test_types_of_reductions(function: Callable[..., Any], given: str, result: str) -> None:
    assert function(operand(given), 0).dtype == dtype(result)


def test_u1_sum_counts() -> None:
    assert int(tl.sum(tl.arange(0, 8) < 5)) == 5
    assert tl.sum(tl.arange(0, 8), dtype=tl.int64).dtype == tl.int64


def test_pointers_move_by_elements_of_any_integer_type() -> None:
    pointer = tl.to_tensor(4096).to(tl.int64).to(tl.pointer_type(tl.float32))
    unsigned = tl.full([4], 4294967295, tl.uint32)
    assert (pointer + unsigned).to(tl.int64).data.tolist() == [4096 + 4 * 4294967295] * 4
    assert int((pointer - 3).to(tl.int64)) == 4096 - 12
    assert int((2 + pointer).to(tl.uint64)) == 4104
    small = tl.full([2], 3, tl.uint8)
    assert (pointer - small).to(tl.int64).data.tolist() == [4084, 4084]
    assert bool(pointer == pointer) and not bool(pointer != pointer)
    with pytest.raises(InvalidUse, match="pointers cannot be subtracted"):
        pointer - pointer
