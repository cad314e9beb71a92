"""What `dot` and `dot_scaled` mean: products of matrices, or of batches of them.

Products and sums are taken in f64, and the result is rounded once: it is what the exact sum would be, or very nearly.
Generated code adds up in f32 and in another order, so it differs by what that rounds. Integers are exact, and wrap
around. The input precision of f32 says how much of the operands tensor cores may leave out; here, as on any device that
has none, it changes nothing.
"""

from __future__ import annotations

import numpy as np

from stator.tile.interpret.casts import Data, narrow, widen
from stator.tile.interpret.compute import Given, Row
from stator.tile.ir.rules import SCALE_GROUP, dtype_of
from stator.tile.ir.types import F32, DType

#: The numbers of e2m1, by their bits.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _dot(given: Given, a: Data, b: Data, acc: Data) -> Data:
    left, right, result = map(dtype_of, given.types)
    if not left.is_float:
        return (_exact(a, b) + acc).astype(result.numpy)
    total = _numbers(a, left) @ _numbers(b, right)
    return narrow(total + _numbers(acc, result), result)


def _numbers(data: Data, dtype: DType) -> Data:
    return widen(data, dtype).astype(np.float64)


def _exact(a: Data, b: Data) -> Data:
    """Sums of products of 8 bits stay below what f64 holds exactly."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


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
