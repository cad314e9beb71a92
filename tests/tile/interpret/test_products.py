"""Products of matrices against exact fractions: every dtype, batches, and the formats that are scaled."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stator.tile.interpret.exact import rounded
from stator.tile.ir.rules import FORMATS
from stator.tile.ir.types import DTYPES
from tests.tile.interpret.cases import FP8, Case, Data, draw, numbers_of, wrapped

SHAPES = [((4, 8), (8, 2)), ((1, 16), (16, 3)), ((2, 3, 4), (2, 4, 3))]


def drawn(dtype: str, shape: tuple[int, ...], what: str) -> Data:
    """Numbers among which no infinity is, nor NaN."""
    data = draw(dtype, shape, what, special=False)
    if dtype == "f8e4b15" or not DTYPES[dtype].is_float:
        return data
    return np.clip(data.astype(np.float32), -8, 8).astype(data.dtype)


def case(left: str, right: str, acc: str, shapes: tuple[tuple[int, ...], ...], **attrs: Any) -> Case:
    a, b = shapes
    operands = ((left, drawn(left, a, "a")), (right, drawn(right, b, "b")), (acc, drawn(acc, (*a[:-1], b[-1]), "acc")))
    return Case("dot", operands, attrs)


def exactly(a: Data, b: Data, acc: Data) -> list[Fraction]:
    """The sum of products at each place; operands are arrays of fractions."""
    return [*((a[..., :, :, None] * b[..., None, :, :]).sum(-2) + acc).ravel()]


def fractions(dtype: str, data: Data) -> Data:
    numbers = np.empty(data.size, object)
    numbers[:] = [Fraction(number) for number in numbers_of(dtype, data)]
    return numbers.reshape(data.shape)


FLOATING = [
    ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("bf16", "bf16", "bf16"),
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"), *[(name, name, "f32") for name in FP8], ("f8e4nv", "f8e5", "f32"), ("f8e5", "f8e5", "f16"),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(("left", "right", "acc"), FLOATING)
def test_floats(left: str, right: str, acc: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    given = case(left, right, acc, shapes, precision="ieee")
    (found,) = given.run()
    operands = [fractions(name, data) for name, data in given.operands]
    slack = 2.0**-40 if acc != "f64" else 2.0**-48
    for number, wanted in zip(numbers_of(acc, found), exactly(*operands), strict=True):
        near = rounded(wanted, DTYPES[acc], "rn") if wanted else 0.0
        assert abs(number - near) <= slack * max(1.0, abs(near)), (number, near)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_integers(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    given = case(dtype, dtype, "i32", shapes)
    operands = [fractions(name, data) for name, data in given.operands]
    wanted = [wrapped(int(number), DTYPES["i32"]) for number in exactly(*operands)]
    assert given.run()[0].ravel().tolist() == wanted


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "bf16x3", "bf16x6"])
def test_precision_is_about_tensor_cores(precision: str) -> None:
    """There are none here."""
    given = [case("f32", "f32", "f32", SHAPES[0], precision=name).run()[0] for name in ("ieee", precision)]
    assert given[0].tobytes() == given[1].tobytes()


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"])
def test_infinities_stay(precision: str) -> None:
    a, b = np.array([[np.inf, 1.5]], np.float32), np.array([[2.0], [0.1]], np.float32)
    operands = (("f32", a), ("f32", b), ("f32", np.zeros((1, 1), np.float32)))
    assert Case("dot", operands, {"precision": precision}).run()[0].item() == np.inf


def test_a_sum_of_integers_wraps_around() -> None:
    a, b = np.full((1, 4), 127, np.int8), np.full((4, 1), 127, np.int8)
    acc = np.full((1, 1), 2**31 - 1, np.int32)
    (found,) = Case("dot", (("i8", a), ("i8", b), ("i32", acc))).run()
    assert found.item() == 2**31 - 1 + 4 * 127 * 127 - 2**32


_E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def unpacked(form: str, data: Data, pack: str, inner: int) -> Data:
    """The numbers of an operand, one by one."""
    if form != "e2m1":
        return fractions(FORMATS[form], data)
    axis = inner if pack == "inner" else 1 - inner
    shape = [size * (1 + (i == axis)) for i, size in enumerate(data.shape)]
    found = np.empty(shape, object)
    for place in np.ndindex(*shape):
        byte = list(place)
        byte[axis] //= 2
        bits = int(data[tuple(byte)]) >> 4 * (place[axis] % 2) & 15
        found[place] = Fraction(_E2M1[bits & 7]) * (-1 if bits & 8 else 1)
    return found


SCALED = [
    ("e4m3", "e4m3", True, True, "inner", "inner"), ("e5m2", "e4m3", True, False, "inner", "inner"),
    ("e2m1", "e2m1", True, True, "inner", "inner"), ("e2m1", "e4m3", True, True, "outer", "inner"),
    ("bf16", "e2m1", False, True, "inner", "outer"), ("fp16", "e2m1", False, True, "inner", "inner"),
    ("e2m1", "e2m1", False, False, "inner", "inner"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "scale_a", "scale_b", "pack_a", "pack_b"), SCALED)
def test_scaled(left: str, right: str, scale_a: bool, scale_b: bool, pack_a: str, pack_b: str) -> None:
    rows, inner, columns = 4, 64, 6
    shapes = {"a": [rows, inner], "b": [inner, columns]}
    for name, form, pack, axis in (("a", left, pack_a, 1), ("b", right, pack_b, 0)):
        if form == "e2m1":
            shapes[name][axis if pack == "inner" else 1 - axis] //= 2
    a, b = drawn(FORMATS[left], tuple(shapes["a"]), "a"), drawn(FORMATS[right], tuple(shapes["b"]), "b")
    acc = drawn("f32", (rows, columns), "acc")
    generator = np.random.default_rng(0)
    scales = {n: generator.integers(124, 131, (outer, 2), np.uint8) for n, outer in (("a", rows), ("b", columns))}
    used = [name for name, flag in (("a", scale_a), ("b", scale_b)) if flag]
    attrs = {"format_a": left, "format_b": right, "scale_a": scale_a, "scale_b": scale_b}
    operands = ((FORMATS[left], a), (FORMATS[right], b), ("f32", acc), *[("u8", scales[name]) for name in used])
    given = Case("dot_scaled", operands, {**attrs, "pack_a": pack_a, "pack_b": pack_b})
    first, second = unpacked(left, a, pack_a, 1), unpacked(right, b, pack_b, 0)
    for row, k in np.ndindex(rows, inner):
        first[row, k] *= Fraction(2) ** (int(scales["a"][row, k // 32]) - 127) if scale_a else 1
    for k, column in np.ndindex(inner, columns):
        second[k, column] *= Fraction(2) ** (int(scales["b"][column, k // 32]) - 127) if scale_b else 1
    for number, wanted in zip(given.run()[0].ravel(), exactly(first, second, fractions("f32", acc)), strict=True):
        near = rounded(wanted, DTYPES["f32"], "rn") if wanted else 0.0
        assert abs(float(number) - near) <= 2.0**-23 * abs(near)


def test_a_scale_of_255_is_no_number() -> None:
    a, b = np.ones((1, 32), DTYPES["f8e5"].numpy), np.ones((32, 1), DTYPES["f8e5"].numpy)
    operands = ("f8e5", a), ("f8e5", b), ("f32", np.zeros((1, 1), np.float32)), ("u8", np.array([[255]], np.uint8))
    (found,) = Case("dot_scaled", operands, {"format_a": "e5m2", "format_b": "e5m2", "scale_a": True}).run()
    assert np.isnan(found).all()
