"""What `cast` and `bitcast` mean: rounding, saturation, wrapping, and how dtypes that numpy lacks are read and written.

- A float that is too great becomes an infinity in f16, bf16 and f32, under "rtz" the greatest number. In the kinds of
  fp8 it becomes the greatest number in either way, and so does an infinity. A NaN stays one where there is one; f8e4b15
  has none, and takes its greatest number.
- A float becomes an integer by dropping its fraction; what lies outside becomes the least or greatest integer, NaN 0.
- Integers wrap around. What is not 0 is True.

Every result is rounded once, from the exact value. Neighbours: `compute` rounds what it computes by `narrow`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from stator.tile.ir.types import F32, F64, DType

Data: TypeAlias = np.ndarray[Any, Any]

#: Casts between floats that numpy or ml_dtypes do as we want them done: source bits are at most …, to this dtype.
_NATIVE = {"f16": 64, "bf16": 32, "f32": 64, "f64": 64}


def widen(data: Data, dtype: DType) -> Data:
    """The numbers of floats, exactly, as f64; those of f32 and less as f32."""
    if dtype.name == "f8e4b15":
        return _decoded()[data]
    return data if dtype in (F32, F64) else data.astype(np.float32)


def narrow(data: Data, dtype: DType, rounding: str = "rtne") -> Data:
    """f32 or f64 numbers in a dtype of floats, as they lie in memory."""
    bits = data.dtype.itemsize * 8
    if rounding == "rtne" and bits <= _NATIVE.get(dtype.name, 0):
        return np.asarray(data.astype(dtype.numpy))
    rounded = round_to(data.astype(np.float64), dtype, rounding)
    if dtype.name == "f8e4b15":
        return _encode(rounded)
    return np.asarray(rounded.astype(dtype.numpy))


def round_to(data: Data, dtype: DType, rounding: str) -> Data:
    """f64 numbers rounded to those that a narrower dtype has, still as f64."""
    limit = greatest(dtype)
    _, exponent = np.frexp(data)  # data = f * 2 ** exponent with f in 0.5 … 1
    quantum = np.ldexp(1.0, np.maximum(exponent - 1, 1 - dtype.bias) - dtype.mantissa)
    steps = data / quantum
    rounded = (np.rint(steps) if rounding == "rtne" else np.trunc(steps)) * quantum
    if dtype.is_fp8:
        rounded = np.clip(rounded, -limit, limit)
    elif rounding == "rtz":
        rounded = np.where(np.isinf(data), data, np.clip(rounded, -limit, limit))
    else:
        rounded = np.where(np.abs(rounded) > limit, np.copysign(np.inf, data), rounded)
    return np.where(np.isnan(data), limit if dtype.name == "f8e4b15" else np.nan, rounded)


@cache
def greatest(dtype: DType) -> float:
    """The greatest finite number of a dtype of floats."""
    return 1.875 if dtype.name == "f8e4b15" else float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]


@cache
def _decoded() -> Data:
    """The number of each byte as f8e4b15: a sign, four bits of an exponent with bias 15, three of a fraction."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    number = np.where(exponent > 0, np.ldexp(8.0 + fraction, exponent - 18), np.ldexp(1.0 * fraction, -17))
    return np.where(bits < 128, number, -number).astype(np.float32)


def _encode(rounded: Data) -> Data:
    """Numbers that f8e4b15 has, as bytes."""
    magnitude = np.searchsorted(_decoded()[:128], np.abs(rounded)).astype(np.uint8)
    return np.asarray(magnitude | (np.signbit(rounded).astype(np.uint8) << 7).astype(np.uint8))


def cast(data: Data, source: DType, target: DType, rounding: str = "rtne") -> Data:
    """The value in another dtype."""
    if source == target:
        return data
    if target.is_bool:
        return np.asarray((widen(data, source) if source.is_float else data) != 0)
    if source.is_float:
        numbers = widen(data, source)
        return narrow(numbers, target, rounding) if target.is_float else _to_integer(numbers, target)
    if not target.is_float:
        return np.asarray(data.astype(target.numpy))
    if target in (F32, F64):
        return np.asarray(data.astype(target.numpy))
    return narrow(_sticky(data), target)


def _to_integer(data: Data, target: DType) -> Data:
    whole = np.trunc(data.astype(np.float64))
    inside = np.clip(np.where(np.isnan(whole), 0.0, whole), float(target.low), _below(target))
    found = inside.astype(target.numpy)
    return np.asarray(np.where(whole > _below(target), target.numpy.type(target.high), found))


def _below(dtype: DType) -> float:
    """The greatest f64 that an integer dtype has."""
    return float(dtype.high) if dtype.bits <= 32 else float(np.nextafter(float(dtype.high), 0))


def _sticky(data: Data) -> Data:
    """Integers as f64 that round to a narrower float as the integers would.

    Of those with more bits than an f64 has, the bits that are lost leave their trace in the last one.
    """
    if data.dtype.itemsize < 8:
        return np.asarray(data.astype(np.float64))
    large = ~np.isin(data >> 53, [0, -1] if data.dtype.kind == "i" else [0])
    low = data & data.dtype.type(2047)
    traced = (data - low) | np.where(low != 0, data.dtype.type(2048), data.dtype.type(0))
    return np.asarray(np.where(large, traced, data).astype(np.float64))


def bitcast(data: Data, target: np.dtype[Any]) -> Data:
    """The same bits as another dtype of as many."""
    return np.ascontiguousarray(data).view(target).reshape(data.shape)
