"""What `dot` and `dot_scaled` mean: products of matrices, or of batches of them.

Products and sums are taken in f64, and the result is rounded once: it is what the exact sum would be, or very nearly.
Generated code adds up in f32 and in another order, so it differs by what that rounds. Integers are exact, and wrap
around. The input precision of f32 says what the operands are rounded to first, and into how many parts they are split.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from stator.tile.interpret.casts import Data, bf16, narrow, tf32, widen
from stator.tile.interpret.compute import Given, Row
from stator.tile.ir.rules import SCALE_GROUP, dtype_of
from stator.tile.ir.types import F32, DType

#: Input precision → how a part is rounded, and how many parts an operand is split into.
_PARTS: dict[str, tuple[Callable[[Data], Data], int]] = {
    "tf32": (tf32, 1), "tf32x3": (tf32, 2), "bf16x3": (bf16, 2), "bf16x6": (bf16, 3),
}  # fmt: skip
#: The numbers of e2m1, by their bits.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _dot(given: Given, a: Data, b: Data, acc: Data) -> Data:
    left, right, result = map(dtype_of, given.types)
    if not left.is_float:
        return (_exact(a, b) + acc).astype(result.numpy)
    first, second = _numbers(a, left), _numbers(b, right)
    if left == F32 and given.attrs["precision"] in _PARTS:
        total = _in_parts(first, second, *_PARTS[given.attrs["precision"]])
    else:
        total = first @ second
    return narrow(total + _numbers(acc, result), result)


def _numbers(data: Data, dtype: DType) -> Data:
    return widen(data, dtype).astype(np.float64)


def _exact(a: Data, b: Data) -> Data:
    """Sums of products of 8 bits stay below what f64 holds exactly."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


def _in_parts(a: Data, b: Data, rounded: Callable[[Data], Data], count: int) -> Data:
    """The product of the parts, without those that are as small as what is left out of the operands."""
    left, right = ([*_split(item, rounded, count)] for item in (a, b))
    first = total = left[0] @ right[0]
    for i, j in itertools.product(range(count), range(count)):
        if 0 < i + j < count:
            total = total + left[i] @ right[j]
    return np.where(np.isfinite(first), total, first)  # the small parts of an infinity are 0, and 0 times it a NaN


def _split(data: Data, rounded: Callable[[Data], Data], count: int) -> list[Data]:
    parts = []
    for _ in range(count):
        part = rounded(data.astype(np.float32)).astype(np.float64)
        parts.append(part)
        data = np.where(np.isfinite(part), data - part, 0.0)
    return parts


def _dot_scaled(given: Given, a: Data, b: Data, acc: Data, *scales: Data) -> Data:
    rest = list(scales)
    operands = []
    for name, data, inner, number in (("a", a, 1, 0), ("b", b, 0, 1)):
        numbers = _unpacked(given, name, data, inner, dtype_of(given.types[number]))
        if given.attrs[f"scale_{name}"]:
            exponent = rest.pop(0)
            factor = np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent.astype(np.int32) - 127))
            spread = np.repeat(factor, SCALE_GROUP, axis=1)
            numbers = numbers * (spread if inner == 1 else spread.T)
        operands.append(numbers)
    return narrow(operands[0] @ operands[1] + acc, F32)


def _unpacked(given: Given, name: str, data: Data, inner: int, dtype: DType) -> Data:
    """The numbers of an operand; of the two e2m1 in a byte the lower bits are the first."""
    if given.attrs[f"format_{name}"] != "e2m1":
        return _numbers(data, dtype)
    axis = inner if given.attrs[f"pack_{name}"] == "inner" else 1 - inner
    both = np.stack([_E2M1[data & 15], _E2M1[data >> 4]], axis=axis + 1)
    shape = list(data.shape)
    shape[axis] *= 2
    return both.reshape(shape)


PRODUCTS: dict[str, Row] = {"dot": _dot, "dot_scaled": _dot_scaled}
