"""What the functions of libdevice compute, a row of a table each.

Functions of floats are computed in f64 and rounded; the fast ones are the same, for being fast is not a meaning. The
rows of the four directions of rounding are made from one table. Integers behave as in `compute`; a float that does not
fit into an integer saturates, and a NaN becomes 0.
Neighbours: `ir.externs` has the signatures; `exact` rounds in directions; `bessel` and `inverse` compute the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from stator.tile.interpret import inverse
from stator.tile.interpret.bessel import bessel_i, bessel_j, bessel_y
from stator.tile.interpret.casts import Data, bitcast, narrow
from stator.tile.interpret.compute import COMPUTE, FUNCTIONS, Fault, Given
from stator.tile.interpret.exact import directed, directed_integers, directed_root
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import F64, DType, Type

Function: TypeAlias = Callable[..., Data]
WAYS = ("rn", "rz", "rd", "ru")
#: The greatest order of a Bessel function that is computed.
ORDERS = 100_000


def call(symbol: str, types: Sequence[Type], result: Type, *data: Data) -> Data:
    """A function of libdevice on tiles of one shape."""
    dtype = dtype_of(result)
    if symbol in DIRECTED:
        return np.asarray(DIRECTED[symbol](dtype, *data))
    if symbol in INTEGERS:
        return np.asarray(INTEGERS[symbol](*data)).astype(dtype.numpy, copy=False)
    if symbol in BITS:
        return bitcast(np.asarray(data[0]), dtype.numpy)
    if symbol == "abs" or symbol == "mulhi" or symbol == "fma":
        return COMPUTE[symbol](Given(types, {}, (result,)), *data)
    wide = [item.astype(np.float64) if item.dtype.kind == "f" else item for item in data]
    found = np.asarray(NUMBERS[symbol](*wide))
    return narrow(found, dtype) if dtype.is_float else found.astype(dtype.numpy)


def _each(function: Callable[..., float]) -> Function:
    """A function of Python numbers on arrays."""
    return np.vectorize(function, otypes=[np.float64])


def _half_turns(data: Data) -> tuple[Data, Data, Data]:
    """Sine and cosine of pi times what is left of a number after quarters of it, and how many of those."""
    whole = np.rint(2 * np.fmod(data, 2.0))
    rest = np.pi * (np.fmod(data, 2.0) - whole / 2)
    return np.sin(rest), np.cos(rest), np.where(np.isfinite(whole), whole, 0).astype(np.int64) % 4


def _sinpi(data: Data) -> Data:
    sine, cosine, quarter = _half_turns(data)
    found = np.choose(quarter, [sine, cosine, -sine, -cosine])
    return np.where(np.isfinite(data) & (data == np.trunc(data)), np.copysign(0.0, data), found)


def _cospi(data: Data) -> Data:
    sine, cosine, quarter = _half_turns(data)
    found = np.choose(quarter, [cosine, -sine, -cosine, sine])
    return np.where(found == 0, 0.0, found)


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _tgamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    if x < 0 and (math.isinf(x) or x == math.floor(x)):
        return math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


def _remainder(x: float, y: float) -> float:
    """That of the nearest quotient."""
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return math.nan
    return math.remainder(x, y)


def _away(data: Data) -> Data:
    """The nearest integer, of two the one further from 0."""
    magnitude = np.abs(data)
    whole = np.floor(magnitude)
    return np.copysign(whole + (magnitude - whole >= 0.5), data)


def _logb(data: Data) -> Data:
    exponent = np.frexp(data)[1] - 1.0
    return np.where(data == 0, -np.inf, np.where(np.isfinite(data), exponent, np.abs(data)))


def _ilogb(data: Data) -> Data:
    least, greatest = -(2**31), 2**31 - 1
    found = np.where(np.isfinite(data) & (data != 0), np.frexp(data)[1] - 1, least)
    return np.where(np.isinf(data), greatest, found)


def _length(*data: Data) -> Data:
    """The root of the sum of squares, without overflow on the way."""
    found = np.abs(data[0])
    for item in data[1:]:
        found = np.hypot(found, item)
    return found


def _to_integer(bits: int, signed: bool, data: Data) -> Data:
    """Whole numbers as integers of as many bits, saturating; unsigned ones as their bits."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def convert(number: float) -> int:
        if math.isnan(number):
            return 0
        found = high if number > high else low if number < low else int(number)
        return found - 2**bits if found >= 2 ** (bits - 1) else found

    return np.vectorize(convert, otypes=[np.int64])(data)


def _scaled(data: Data, exponent: Data) -> Data:
    return np.ldexp(data, np.clip(exponent, -5000, 5000))


def _of_order(function: Callable[[int, float], float]) -> Function:
    """A Bessel function of any order that can be computed in reasonable time."""

    def call(order: int, x: float) -> float:
        if abs(order) > ORDERS:
            raise Fault(f"a Bessel function of order {order}: the interpreter knows those up to {ORDERS}")
        return function(int(order), x)

    return _each(call)


def _high_word(data: Data) -> Data:
    return bitcast(bitcast(np.asarray(data), np.dtype(np.uint64)) & np.uint64(0xFFFFFFFF00000000), np.dtype(np.float64))


#: Functions of floats (and integers), on f64.
NUMBERS: dict[str, Function] = {
    **FUNCTIONS,
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "atan2": np.arctan2, "cbrt": np.cbrt, "rcbrt": lambda x: 1 / np.cbrt(x), "cosh": np.cosh,
    "sinh": np.sinh, "tan": np.tan, "cospi": _cospi, "sinpi": _sinpi, "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1, "log1p": np.log1p, "log10": np.log10, "logb": _logb, "ilogb": _ilogb, "sqrt": np.sqrt,
    "rint": np.rint, "nearbyint": np.rint, "round": _away,
    "erfc": _each(math.erfc), "erfcx": _each(inverse.erfcx), "erfinv": _each(inverse.erfinv),
    "erfcinv": _each(inverse.erfcinv), "normcdf": _each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "normcdfinv": _each(lambda p: -math.sqrt(2) * inverse.erfcinv(2 * p)),
    "lgamma": _each(_lgamma), "tgamma": _each(_tgamma),
    "cyl_bessel_i0": _each(lambda x: bessel_i(0, x)), "cyl_bessel_i1": _each(lambda x: bessel_i(1, x)),
    "j0": _each(lambda x: bessel_j(0, x)), "j1": _each(lambda x: bessel_j(1, x)),
    "y0": _each(lambda x: bessel_y(0, x)), "y1": _each(lambda x: bessel_y(1, x)),
    "jn": _of_order(bessel_j), "yn": _of_order(bessel_y),
    "copysign": np.copysign, "fdim": lambda x, y: np.where(x <= y, 0.0, x - y), "fmod": np.fmod,
    "remainder": _each(_remainder), "hypot": _length, "rhypot": lambda *x: 1 / _length(*x), "norm3d": _length,
    "rnorm3d": lambda *x: 1 / _length(*x), "norm4d": _length, "rnorm4d": lambda *x: 1 / _length(*x),
    "ldexp": _scaled, "scalbn": _scaled, "pow": lambda x, y: np.power(x, y.astype(np.float64)),
    "isinf": np.isinf, "isnan": np.isnan, "signbit": np.signbit, "finitef": np.isfinite, "isfinited": np.isfinite,
    "llrint": lambda x: _to_integer(64, True, np.rint(x)), "llround": lambda x: _to_integer(64, True, _away(x)),
    "fast_cosf": np.cos, "fast_sinf": np.sin, "fast_tanf": np.tan, "fast_tanhf": np.tanh, "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(10.0, x), "fast_logf": np.log, "fast_log2f": np.log2, "fast_log10f": np.log10,
    "fast_dividef": np.divide, "fast_powf": np.power, "rsqrt_rn": lambda x: 1 / np.sqrt(x),
    "saturatef": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)), "rcp64h": lambda x: _high_word(1 / x),
}  # fmt: skip

#: Functions that give the bits of their operand.
BITS = {"float_as_int", "float_as_uint", "double_as_longlong", "int_as_float", "uint_as_float", "longlong_as_double"}


def _nextafter(dtype: DType, a: Data, b: Data) -> Data:
    return np.nextafter(a, b)


def _directed_rows() -> dict[str, Function]:
    """The functions that are rounded in a direction, and what else depends on the dtype of the result."""
    exactly: dict[str, tuple[Callable[..., Fraction], Callable[..., Data]]] = {
        "add": (lambda a, b: a + b, np.add), "sub": (lambda a, b: a - b, np.subtract),
        "mul": (lambda a, b: a * b, np.multiply), "div": (lambda a, b: a / b, np.divide),
        "fma": (lambda a, b, c: a * b + c, lambda a, b, c: a * b + c), "rcp": (lambda a: 1 / a, lambda a: 1 / a),
    }  # fmt: skip
    rows: dict[str, Function] = {"nextafter": _nextafter}
    for way in WAYS:
        for name, (exact, plain) in exactly.items():
            rows[f"{name}_{way}"] = lambda dtype, *data, w=way, e=exact, p=plain: directed(dtype, w, e, p, *data)
        rows[f"sqrt_{way}"] = lambda dtype, data, w=way: directed_root(dtype, w, data)
        rows[f"double2float_{way}"] = lambda dtype, data, w=way: directed(
            dtype, w, lambda number: number, lambda item: item.astype(np.float32), data
        )
        for source in ("int2float", "uint2float", "ll2float", "ull2float", "ll2double", "ull2double"):
            rows[f"{source}_{way}"] = lambda dtype, data, w=way: directed_integers(data, dtype, w)
    for source in ("int2double_rn", "uint2double_rn"):
        rows[source] = lambda dtype, data: data.astype(np.float64)
    return rows


DIRECTED = _directed_rows()

_WHOLE = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def _converting_rows() -> dict[str, Function]:
    """Floats to integers."""
    targets = {"int": (32, True), "uint": (32, False), "ll": (64, True), "ull": (64, False)}
    return {
        f"{source}2{name}_{way}": lambda data, b=bits, s=signed, w=whole: _to_integer(b, s, w(data.astype(np.float64)))
        for source in ("float", "double")
        for name, (bits, signed) in targets.items()
        for way, whole in _WHOLE.items()
    }


def _bits_of(data: Data) -> tuple[Data, int]:
    """The bits of integers as unsigned ones, and how many they are."""
    size = data.dtype.itemsize
    return bitcast(data, np.dtype(f"uint{8 * size}")), 8 * size


def _leading_zeros(data: Data) -> Data:
    bits, width = _bits_of(data)
    return np.vectorize(lambda word: width - int(word).bit_length(), otypes=[np.int64])(bits)


def _population(data: Data) -> Data:
    return np.vectorize(lambda word: int(word).bit_count(), otypes=[np.int64])(_bits_of(data)[0])


def _first_set(data: Data) -> Data:
    """The place of the lowest bit that is set, from 1 on; 0 if none is."""
    return np.vectorize(lambda word: (int(word) & -int(word)).bit_length(), otypes=[np.int64])(_bits_of(data)[0])


def _reversed(data: Data) -> Data:
    bits, width = _bits_of(data)
    turned = np.vectorize(lambda word: int(f"{int(word):0{width}b}"[::-1], 2), otypes=[bits.dtype])(bits)
    return bitcast(np.asarray(turned, bits.dtype), data.dtype)


def _of_24_bits(a: Data, b: Data) -> Data:
    """The lower half of the product of the lower 24 bits, which have a sign where the operands do."""
    eight = a.dtype.type(8)
    first, second = (np.right_shift(np.left_shift(item, eight), eight) for item in (a, b))
    return np.multiply(first, second)


def _average(up: int) -> Function:
    return lambda a, b: (a.astype(np.int64) + b.astype(np.int64) + up) >> 1


def _differences(a: Data, b: Data, c: Data) -> Data:
    return np.abs(a.astype(np.int64) - b.astype(np.int64)) + c


def _bytes(a: Data, b: Data, selector: Data) -> Data:
    """Four of the eight bytes of two integers, by the lower three bits of each digit of a selector."""
    both = _bits_of(a)[0].astype(np.uint64) | _bits_of(b)[0].astype(np.uint64) << np.uint64(32)
    found = np.zeros_like(both)
    for place in range(4):
        number = selector.astype(np.uint64) >> np.uint64(4 * place) & np.uint64(7)
        found |= (both >> (number * np.uint64(8)) & np.uint64(255)) << np.uint64(8 * place)
    return found


#: Functions of integers, and those that give them; the result wraps around.
INTEGERS: dict[str, Function] = {
    **_converting_rows(),
    "clz": _leading_zeros, "popc": _population, "ffs": _first_set, "brev": _reversed, "mul24": _of_24_bits,
    "hadd": _average(0), "rhadd": _average(1), "sad": _differences, "byte_perm": _bytes,
    "double2hiint": lambda data: bitcast(data, np.dtype(np.int64)) >> 32,
    "double2loint": lambda data: bitcast(data, np.dtype(np.int64)),
    "hiloint2double": lambda high, low: bitcast(
        high.astype(np.int64) << 32 | low.astype(np.int64) & 0xFFFFFFFF, F64.numpy
    ),
}  # fmt: skip
