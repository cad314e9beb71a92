"""Scalars: dtypes, the table of scalar operators, and what each computes on Python numbers.

One definition serves constant folding in `expr` and the reference evaluator, so they cannot differ. Floats are rounded
to their dtype after every operator (computing +, -, *, / and sqrt of float32 in double and rounding once is exact);
integers wrap around. Operators in `EXACT` give the same bits on every machine and may be folded.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

Number = Any  # a bool, int or float: which one follows from the dtype

FLOATS = frozenset(("f64", "f32", "bf16", "f16"))
HALVES = ("bf16", "f16")
INTEGERS = frozenset(("i64", "i32", "i16", "i8", "u8"))
COMPUTED = frozenset(("f64", "f32", *INTEGERS, "bool"))  # arithmetic happens on these
_FORMAT = {"f64": "<d", "f32": "<f", "f16": "<e", "i64": "<q", "i32": "<i", "i16": "<h", "i8": "<b", "u8": "<B"}
_BITS = {"i64": 64, "i32": 32, "i16": 16, "i8": 8, "u8": 8}


@dataclass(frozen=True, slots=True)
class Operator:
    """`rule` names the dtypes it takes and gives: see `result_dtype`."""

    name: str
    arity: int
    rule: str
    meaning: str
    compute: Callable[..., Number]


def round_to(dtype: str, value: Number) -> Number:
    """The value as the dtype holds it: rounded to nearest even, wrapped around, or true/false."""
    if dtype == "f32":
        return c_float(value).value
    if dtype == "f64":
        return float(value)
    if dtype == "bool":
        return bool(value)
    if dtype == "bf16":
        return _round_bf16(c_float(value).value)
    if dtype == "f16":
        return _round_f16(c_float(value).value)
    bits = _BITS[dtype]
    value = int(value) & ((1 << bits) - 1)
    return value if dtype == "u8" or value < 1 << (bits - 1) else value - (1 << bits)


def _round_bf16(value: float) -> float:
    if value != value:
        return value
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    result: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return result


def _round_f16(value: float) -> float:
    if abs(value) >= 65520.0:
        return math.copysign(math.inf, value)
    result: float = struct.unpack("<e", struct.pack("<e", value))[0]
    return result


def convert(dtype: str, value: Number) -> Number:
    """A cast. A float outside of the integers that it goes through gives the lowest of them, as x86 does.

    It goes through i32, to u8 and i64 through i64, and wraps around from there on, as in eager's kernels.
    """
    if dtype in INTEGERS and isinstance(value, float):
        way = "i64" if dtype in ("i64", "u8") else "i32"
        return round_to(dtype, math.trunc(value) if in_range(way, value) else -(1 << (_BITS[way] - 1)))
    return round_to(dtype, value)


def holds(dtype: str, value: float) -> bool:
    """Whether a dtype of floats has a number exactly; all have what is none."""
    return math.isnan(value) or convert(dtype, value) == value


def in_range(dtype: str, value: float) -> bool:
    """Whether the whole part of a float is a signed integer of the dtype."""
    limit = 1 << (_BITS[dtype] - 1)
    return math.isfinite(value) and -limit <= math.trunc(value) < limit


def pack(dtype: str, value: Number) -> bytes:
    """The bytes of a value in memory, little endian."""
    if dtype == "bool":
        return b"\1" if value else b"\0"
    if dtype == "bf16":
        return struct.pack("<f", value)[2:]
    if dtype in FLOATS:
        value = round_to(dtype, value)
        if dtype == "f32" and math.isinf(value):
            return struct.pack("<I", 0x7F800000 if value > 0 else 0xFF800000)
    return struct.pack(_FORMAT[dtype], value)


def unpack(dtype: str, data: bytes | bytearray | memoryview, position: int = 0) -> Number:
    """The value whose bytes start at `position`."""
    if dtype == "bool":
        return data[position] != 0
    if dtype == "bf16":
        return struct.unpack("<f", b"\0\0" + bytes(data[position : position + 2]))[0]
    return struct.unpack_from(_FORMAT[dtype], data, position)[0]


def identity(kind: str, dtype: str) -> Number:
    """What a reduction of nothing gives; minima and maxima start from the dtype's far end."""
    match kind:
        case "sum" | "any":
            return round_to(dtype, 0)
        case "prod" | "all":
            return round_to(dtype, 1)
        case "max" | "argmax" | "logsumexp" if dtype in FLOATS:
            return -math.inf
        case "min" | "argmin" if dtype in FLOATS:
            return math.inf
        case "max" | "argmax":
            return {"bool": False, "u8": 0}.get(dtype, -(1 << (_BITS.get(dtype, 1) - 1)))
        case _:
            return {"bool": True, "u8": 255}.get(dtype, (1 << (_BITS.get(dtype, 1) - 1)) - 1)


# -- what the operators compute ------------------------------------------------------------------


def _float_div(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or a != a or b != b else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _fma(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c  # which of the zeros
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _floordiv(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        return float(math.floor(a / b)) if b and math.isfinite(a / b) else _float_div(a, b)
    return a // b if b else 0


def _mod(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        if not b or not math.isfinite(a) or b != b:
            return math.nan
        return math.copysign(0.0, b) if a % b == 0 else a % b
    return a % b if b else 0


def _minimum(a: Number, b: Number) -> Number:
    return a if a != a or a < b else b


def _maximum(a: Number, b: Number) -> Number:
    return a if a != a or a > b else b


def _guarded(function: Callable[..., float], overflow: float = math.inf) -> Callable[..., float]:
    """NaN outside of the domain and `overflow` past the largest float, instead of exceptions."""

    def compute(*args: float) -> float:
        try:
            return function(*args)
        except OverflowError:
            return overflow
        except ValueError:
            return math.nan

    return compute


def _pow(a: Number, b: Number) -> Number:
    if not isinstance(a, float):
        return a**b if b >= 0 else (0 if abs(a) != 1 else a ** (-b))
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.nan if a else (math.copysign(math.inf, a) if b % 2 == 1 else math.inf)


def _erf_inverse(a: float) -> float:
    """By Newton's method, on the function that is not near 1."""
    size = abs(a)
    if not size < 1.0:
        return math.copysign(math.inf, a) if size == 1.0 else math.nan
    x = -NormalDist().inv_cdf((1.0 - size) / 2.0) / math.sqrt(2.0)
    for _ in range(4):
        off = math.erf(x) - size if size < 0.5 else (1.0 - size) - math.erfc(x)
        x -= off * math.exp(x * x) * math.sqrt(math.pi) / 2.0
    return math.copysign(x, a)


def _log(function: Callable[[float], float], zero: float) -> Callable[[float], float]:
    return lambda a: -math.inf if a == zero else _guarded(function)(a)


def _log_gamma(a: float) -> float:
    return math.inf if a <= 0 and float(a).is_integer() else _guarded(math.lgamma)(a)


def _sinh(a: float) -> float:
    return math.sinh(a) if abs(a) < 710 or a != a else math.copysign(math.inf, a)


def _sigmoid(a: float) -> float:
    return 1.0 / (1.0 + math.exp(-a)) if a > -700 or a != a else 0.0


def _rounded(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda a: math.copysign(float(function(a)), a) if math.isfinite(a) else a


def _sign(a: Number) -> Number:
    return a if a == 0 or a != a else (1 if a > 0 else -1)


def _logaddexp(a: float, b: float) -> float:
    low, high = _minimum(a, b), _maximum(a, b)
    return high if low == high and math.isinf(low) else math.log1p(math.exp(low - high)) + high


def _shr(a: int, b: int) -> int:
    return a >> (b if 0 <= b < 64 else 63)


_sqrt = _guarded(math.sqrt)

# name, arity, rule, meaning, compute
_TABLE: tuple[tuple[str, int, str, str, Callable[..., Number]], ...] = (
    ("add", 2, "same", "a + b; `or` on bool", lambda a, b: a + b),
    ("sub", 2, "same", "a - b", lambda a, b: a - b),
    ("mul", 2, "same", "a * b; `and` on bool", lambda a, b: a * b),
    ("div", 2, "float", "a / b", _float_div),
    ("fma", 3, "float", "a * b + c, rounded once where the processor does so, as eager is built for it", _fma),
    ("floordiv", 2, "same", "floor(a / b); integers by 0 give 0, on a GPU what eager gives", _floordiv),
    ("mod", 2, "same", "a - b*floor(a / b), the sign of b", _mod),
    ("neg", 1, "same", "-a", lambda a: -a),
    ("abs", 1, "same", "|a|", abs),
    ("minimum", 2, "same", "the smaller; NaN if either is", _minimum),
    ("maximum", 2, "same", "the larger; NaN if either is", _maximum),
    ("pow", 2, "same", "a to the power b", _pow),
    ("sqrt", 1, "float", "square root, rounded right", _sqrt),
    ("rsqrt", 1, "float", "1 / sqrt(a)", lambda a: _float_div(1.0, _sqrt(a))),
    ("reciprocal", 1, "float", "1 / a", lambda a: _float_div(1.0, a)),
    ("exp", 1, "float", "e to the power a", _guarded(math.exp)),
    ("exp2", 1, "float", "2 to the power a", _guarded(lambda a: math.pow(2.0, a))),
    ("expm1", 1, "float", "exp(a) - 1", _guarded(math.expm1)),
    ("log", 1, "float", "natural logarithm", _log(math.log, 0.0)),
    ("log2", 1, "float", "logarithm to base 2", _log(math.log2, 0.0)),
    ("log10", 1, "float", "logarithm to base 10", _log(math.log10, 0.0)),
    ("log1p", 1, "float", "log(1 + a)", _log(math.log1p, -1.0)),
    ("sin", 1, "float", "sine", _guarded(math.sin)),
    ("cos", 1, "float", "cosine", _guarded(math.cos)),
    ("tan", 1, "float", "tangent", _guarded(math.tan)),
    ("tanh", 1, "float", "hyperbolic tangent", math.tanh),
    ("asin", 1, "float", "inverse sine", _guarded(math.asin)),
    ("acos", 1, "float", "inverse cosine", _guarded(math.acos)),
    ("atan", 1, "float", "inverse tangent", math.atan),
    ("atan2", 2, "float", "angle of the point (b, a)", math.atan2),
    ("sinh", 1, "float", "hyperbolic sine", _sinh),
    ("cosh", 1, "float", "hyperbolic cosine", _guarded(math.cosh)),
    ("erf", 1, "float", "error function", math.erf),
    ("erfc", 1, "float", "1 - erf(a)", math.erfc),
    ("lgamma", 1, "float", "log |gamma(a)|", _log_gamma),
    ("erfinv", 1, "float", "where the error function is a", _erf_inverse),
    ("sigmoid", 1, "float", "1 / (1 + exp(-a))", _sigmoid),
    ("sign", 1, "same", "-1, 0 or 1; NaN stays", _sign),
    ("floor", 1, "float", "round down", _rounded(math.floor)),
    ("ceil", 1, "float", "round up", _rounded(math.ceil)),
    ("trunc", 1, "float", "round towards 0", _rounded(math.trunc)),
    ("round", 1, "float", "round to nearest, ties to even", _rounded(round)),
    ("eq", 2, "compare", "a == b", lambda a, b: a == b),
    ("ne", 2, "compare", "a != b", lambda a, b: a != b),
    ("lt", 2, "compare", "a < b", lambda a, b: a < b),
    ("le", 2, "compare", "a <= b", lambda a, b: a <= b),
    ("gt", 2, "compare", "a > b", lambda a, b: a > b),
    ("ge", 2, "compare", "a >= b", lambda a, b: a >= b),
    ("and", 2, "bits", "bitwise and; logical on bool", lambda a, b: a & b),
    ("or", 2, "bits", "bitwise or; logical on bool", lambda a, b: a | b),
    ("xor", 2, "bits", "bitwise exclusive or", lambda a, b: a ^ b),
    ("not", 1, "bits", "bitwise not; logical on bool", lambda a: not a if isinstance(a, bool) else ~a),
    ("shl", 2, "bits", "a << b, 0 past the width and for a negative b", lambda a, b: a << b if 0 <= b < 64 else 0),
    ("shr", 2, "bits", "a >> b, only the sign past the width and for a negative b", _shr),
    ("where", 3, "where", "a ? b : c", lambda a, b, c: b if a else c),
    ("isnan", 1, "test", "a is NaN", lambda a: a != a),
    ("isinf", 1, "test", "a is an infinity", lambda a: math.isinf(a)),
)

OPS: dict[str, Operator] = {row[0]: Operator(*row) for row in _TABLE}
_ROUNDED_RIGHT = ("div", "sqrt", "reciprocal", "floor", "ceil", "trunc", "round")
EXACT = frozenset(name for name, o in OPS.items() if (o.rule != "float" or name in _ROUNDED_RIGHT) and name != "pow")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
#: What gives one of its operands, from this one on, or a number of no more digits: whole ones near halves are halves.
CHOOSING = {
    "abs": 0, "neg": 0, "sign": 0, "minimum": 0, "maximum": 0, "floor": 0, "ceil": 0, "trunc": 0, "round": 0,
    "where": 1, "masked": 1,
}  # fmt: skip
#: Operators that kernels of a GPU alone have.
OF_GPUS = frozenset(("erfinv",))
#: Operators that cost about as much as an access to memory.
COSTLY = frozenset(
    (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh asin acos atan atan2 sinh cosh erf erfc sigmoid pow "
        "erfinv random"
    ).split()
)
#: Scan -> how what was so far takes the next value. Of equal values the next one is kept, and NaN stays.
SCANS: dict[str, Callable[[Number, Number], Number]] = {
    "sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": _maximum, "min": _minimum, "logsumexp": _logaddexp,
}  # fmt: skip


def result_dtype(name: str, dtypes: tuple[str, ...]) -> str:
    """The dtype an operator gives; TypeError where it does not take these."""
    operator = OPS[name]
    if len(dtypes) != operator.arity:
        raise TypeError(f"{name} takes {operator.arity} operands, not {len(dtypes)}")
    values = dtypes[1:] if operator.rule == "where" else dtypes
    first = values[0]
    legal = all(d == first for d in values)
    match operator.rule:
        case "same":
            legal = legal and first in COMPUTED
        case "float" | "test":
            legal = legal and first in ("f32", "f64")
        case "compare":
            legal = legal and first in COMPUTED
        case "bits":
            legal = legal and (first in INTEGERS or first == "bool")
        case "where":
            legal = legal and dtypes[0] == "bool"
    if not legal:
        raise TypeError(f"{name} does not take ({', '.join(dtypes)})")
    return "bool" if operator.rule in ("compare", "test") else first


def apply(name: str, dtype: str, *args: Number) -> Number:
    """What an operator gives for these values, rounded to its result dtype."""
    return round_to(dtype, OPS[name].compute(*args))
