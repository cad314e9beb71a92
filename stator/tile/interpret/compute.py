"""What the operators mean that only look at their operands: a row of the table each, as a function of numpy arrays.

Data lies as `Type.element.numpy` says; a scalar is an array of shape (). Elementwise rows go by numpy's broadcasting,
so that a scalar operator may be computed for a batch at once. Floats of 16 bits are computed in f32 and rounded, which
gives the exact result rounded once; functions of f32 are computed in f64. Integers wrap around, as numpy's do.
Neighbours: `casts` rounds; `tiles` has what moves or combines elements, `products` has `dot`, `access` has memory;
`program` puts the tables together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stator.tile.interpret.casts import Data, bitcast, cast, narrow, widen
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import F64, DType, Pointer, Type


class Fault(Exception):
    """A kernel did, while it ran, what has no meaning. Who runs it adds the line and the program."""


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of an operation beside its data."""

    types: Sequence[Type]
    attrs: Mapping[str, Any]
    results: Sequence[Type]

    @property
    def dtype(self) -> DType:
        """That of the first operand."""
        return dtype_of(self.types[0])


Row: TypeAlias = Callable[..., Data]


def constant(given: Given) -> Data:
    """The number in its dtype."""
    element, shape = given.results[0].element, given.results[0].shape
    value = given.attrs["value"]
    if isinstance(element, DType) and element.is_float:
        return np.full(shape, narrow(np.asarray(value, np.float64), element))
    return np.full(shape, value, element.numpy)


def _floats(function: Callable[..., Data]) -> Row:
    """Computed on numbers of f32 or f64, then rounded."""

    def row(given: Given, *data: Data) -> Data:
        dtype = given.dtype
        return narrow(np.asarray(function(*[widen(item, dtype) for item in data])), dtype)

    return row


def _in_double(function: Callable[[Data], Data]) -> Row:
    """A function of one number, computed in f64, then rounded."""

    def row(given: Given, data: Data) -> Data:
        return narrow(np.asarray(function(widen(data, given.dtype).astype(np.float64))), given.dtype)

    return row


def _arithmetic(integers: Callable[..., Data], floats: Callable[..., Data]) -> Row:
    """One function of integers, one of floats; an i1 is an integer of one bit."""
    on_floats = _floats(floats)

    def row(given: Given, *data: Data) -> Data:
        if given.dtype.is_float:
            return on_floats(given, *data)
        if given.dtype.is_bool:
            return np.asarray(integers(*[item.astype(np.uint8) for item in data]) & 1 != 0)
        return np.asarray(integers(*data))

    return row


def _quotient(a: Data, b: Data) -> Data:
    """Rounded to zero; 0 where b is. The least integer by -1 wraps around to itself."""
    divisor = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, np.zeros_like(a), a // divisor)
    floored = np.where(divisor == -1, np.negative(a), a // np.where(divisor == -1, np.ones_like(b), divisor))
    inexact = (floored * divisor != a) & ((a < 0) != (divisor < 0))
    return np.where(b == 0, np.zeros_like(a), floored + inexact.astype(a.dtype))


def _remainder(a: Data, b: Data) -> Data:
    """With the sign of a; 0 where b is 0."""
    return np.where(b == 0, np.zeros_like(a), a - _quotient(a, b) * b)


_MINIMUM = {
    "number": _arithmetic(np.fmin, np.fmin), "propagate": _arithmetic(np.minimum, np.minimum),
}  # fmt: skip
_MAXIMUM = {
    "number": _arithmetic(np.fmax, np.fmax), "propagate": _arithmetic(np.maximum, np.maximum),
}  # fmt: skip


def _minimum(given: Given, a: Data, b: Data) -> Data:
    return _MINIMUM[given.attrs["nan"]](given, a, b)


def _maximum(given: Given, a: Data, b: Data) -> Data:
    return _MAXIMUM[given.attrs["nan"]](given, a, b)


def _clamp(given: Given, value: Data, low: Data, high: Data) -> Data:
    return _minimum(given, _maximum(given, value, low), high)


def _negative(given: Given, data: Data) -> Data:
    return data if given.dtype.is_bool else np.asarray(np.negative(data))


def _high_bits(given: Given, a: Data, b: Data) -> Data:
    """The upper half of the product, by halves where there is no integer that is wide enough."""
    dtype = given.dtype
    if dtype.bits == 32:
        wide = np.int64 if dtype.is_signed else np.uint64
        return np.asarray((a.astype(wide) * b.astype(wide) >> wide(32)).astype(dtype.numpy))
    first, second = a.astype(np.uint64), b.astype(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    crossed = (first & low) * (second & low) >> half
    crossed = crossed + (first >> half) * (second & low)
    other = (crossed & low) + (first & low) * (second >> half)
    found = (first >> half) * (second >> half) + (crossed >> half) + (other >> half)
    if dtype.is_signed:
        found = found - np.where(a < 0, second, np.uint64(0)) - np.where(b < 0, first, np.uint64(0))
    return np.asarray(found.astype(dtype.numpy))


def _shift(function: Callable[..., Data]) -> Row:
    """By no less than all bits where the amount is greater than that, or negative."""

    def row(given: Given, data: Data, amount: Data) -> Data:
        bits = given.dtype.bits
        outside = (amount < 0) | (amount >= bits)
        signs = function is np.right_shift and given.dtype.is_signed
        last = function(data, data.dtype.type(bits - 1)) if signs else np.zeros_like(data)
        return np.where(outside, last, function(data, np.where(outside, np.zeros_like(amount), amount)))

    return row


def _compare(function: Callable[..., Data]) -> Row:
    def row(given: Given, a: Data, b: Data) -> Data:
        element = given.types[0].element
        if isinstance(element, Pointer):
            return np.asarray(function(a.view(np.uint64), b.view(np.uint64)))
        return np.asarray(function(widen(a, element), widen(b, element)) if element.is_float else function(a, b))

    return row


def fused(a: Data, b: Data, c: Data) -> Data:
    """a * b + c of f64 numbers with an exact product, rounded so that rounding it again to fewer bits is exact.

    That is rounding to odd: an inexact sum has its last bit set.
    """
    product = a * b
    total = product + c
    other = total - product
    lost = (product - (total - other)) + (c - other)
    even = np.ascontiguousarray(total).view(np.int64).reshape(total.shape) & 1 == 0
    inexact = np.isfinite(total) & (lost != 0) & even
    return np.where(inexact, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total)


def _fma(given: Given, a: Data, b: Data, c: Data) -> Data:
    if given.dtype == F64:
        return np.asarray(_fma_exactly(a, b, c))
    return narrow(fused(*[widen(item, given.dtype).astype(np.float64) for item in (a, b, c)]), given.dtype)


@np.vectorize(otypes=[np.float64])
def _fma_exactly(a: float, b: float, c: float) -> float:
    """Of f64 numbers, by exact integers: Python's division of them rounds once."""
    product = a * b
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return product + c
    if a == 0 or b == 0:
        return product + c
    ratios = [float(number).as_integer_ratio() for number in (a, b, c)]
    numerator = ratios[0][0] * ratios[1][0] * ratios[2][1] + ratios[2][0] * ratios[0][1] * ratios[1][1]
    if numerator == 0:
        return product + c if c != 0 or product != 0 else 0.0
    try:
        return numerator / (ratios[0][1] * ratios[1][1] * ratios[2][1])
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _select(given: Given, condition: Data, a: Data, b: Data) -> Data:
    return np.where(condition, a, b)


def _cast(given: Given, data: Data) -> Data:
    return cast(data, given.dtype, given.attrs["dtype"], given.attrs["rounding"])


def _bitcast(given: Given, data: Data) -> Data:
    return bitcast(data, given.results[0].element.numpy)


def _address(given: Given, pointer: Data, offset: Data) -> Data:
    """Addresses are 64 bits and wrap around, as those of the machine do."""
    element = given.types[0].element
    assert isinstance(element, Pointer)
    return np.asarray(pointer + offset.astype(np.int64) * np.int64(element.to.itemsize))


#: Functions of one float, of f64 numbers.
FUNCTIONS: dict[str, Callable[[Data], Data]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "rsqrt": lambda data: 1 / np.sqrt(data), "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip

COMPUTE: dict[str, Row] = {
    "constant": constant,
    "add": _arithmetic(np.add, np.add), "sub": _arithmetic(np.subtract, np.subtract),
    "mul": _arithmetic(np.multiply, np.multiply), "rem": _arithmetic(_remainder, np.fmod),
    "div": _floats(np.divide), "div_rn": _floats(np.divide), "idiv": _arithmetic(_quotient, np.divide),
    "minimum": _minimum, "maximum": _maximum, "clamp": _clamp,
    "and": lambda given, a, b: np.bitwise_and(a, b), "or": lambda given, a, b: np.bitwise_or(a, b),
    "xor": lambda given, a, b: np.bitwise_xor(a, b), "not": lambda given, a: np.invert(a),
    "shl": _shift(np.left_shift), "shr": _shift(np.right_shift),
    "abs": lambda given, a: np.abs(a), "neg": _negative, "mulhi": _high_bits, "fma": _fma,
    "eq": _compare(np.equal), "ne": _compare(np.not_equal), "lt": _compare(np.less), "le": _compare(np.less_equal),
    "gt": _compare(np.greater), "ge": _compare(np.greater_equal),
    "select": _select,
    "sqrt": _floats(np.sqrt), "sqrt_rn": _floats(np.sqrt),
    **{name: _in_double(function) for name, function in FUNCTIONS.items()},
    "cast": _cast, "bitcast": _bitcast, "addptr": _address,
    "int_to_ptr": lambda given, data: bitcast(data, np.dtype(np.int64)),
    "ptr_to_int": lambda given, data: bitcast(data, given.results[0].element.numpy),
}  # fmt: skip
