"""The functions of libdevice that kernels may call, by name, with what they take and give.

`F` is f32 or f64, the same one throughout a signature; other letters are dtypes. Names are libdevice's without `__nv_`
and without the suffix that tells f32 from f64. Tiles go through elementwise.
Neighbours: `operators` has `extern`, which calls one; `stator.tile.interpret.libdevice` says what each computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stator.tile.ir.core import Block
from stator.tile.ir.rules import count, dtype_of, listed, require
from stator.tile.ir.types import DTYPES, F32, F64, Type

_UNARY = """acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx
erfinv exp exp10 exp2 expm1 abs floor j0 j1 lgamma log log10 log1p log2 logb nearbyint normcdf normcdfinv rcbrt
rcp_rd rcp_rn rcp_ru rcp_rz rint round rsqrt saturatef sin sinh sinpi sqrt sqrt_rd sqrt_rn sqrt_ru sqrt_rz tan tanh
tgamma trunc y0 y1"""
_BINARY = """add_rd add_rn add_ru add_rz atan2 copysign div_rd div_rn div_ru div_rz fdim fmod hypot max min mul_rd
mul_rn mul_ru mul_rz nextafter pow remainder sub_rd sub_rn sub_ru sub_rz"""
_TERNARY = "fma fma_rd fma_rn fma_ru fma_rz norm3d rnorm3d"
_OTHERS = {
    "norm4d": "F F F F -> F", "rnorm4d": "F F F F -> F", "rhypot": "F F -> F", "ilogb": "F -> i32",
    "ldexp": "F i32 -> F", "scalbn": "F i32 -> F", "powi": "F i32 -> F", "jn": "i32 F -> F", "yn": "i32 F -> F",
    "isnan": "F -> i32", "isinf": "F -> i32", "isfinited": "F -> i32", "finitef": "F -> i32", "signbit": "F -> i32",
    "llrint": "F -> i64", "llround": "F -> i64",
    "fast_sinf": "f32 -> f32", "fast_cosf": "f32 -> f32", "fast_tanf": "f32 -> f32", "fast_expf": "f32 -> f32",
    "fast_exp10f": "f32 -> f32", "fast_logf": "f32 -> f32", "fast_log2f": "f32 -> f32", "fast_log10f": "f32 -> f32",
    "fast_powf": "f32 f32 -> f32", "fast_dividef": "f32 f32 -> f32", "rsqrt_rn": "f32 -> f32",
}  # fmt: skip


def _table() -> dict[str, str]:
    same = {1: _UNARY, 2: _BINARY, 3: _TERNARY}
    table = {name: f"{' '.join('F' * arity)} -> F" for arity, names in same.items() for name in names.split()}
    return table | _OTHERS


#: The name of a function → its signature.
EXTERNS: dict[str, str] = _table()


def extern(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """The rule of `extern`."""
    symbol = attrs["symbol"]
    require(symbol in EXTERNS, f"there is no function {symbol}")
    given, result = (side.split() for side in EXTERNS[symbol].split("->"))
    count(types, len(given))
    require(all(operand.shape == types[0].shape for operand in types), f"{listed(types)} differ in shape")
    dtypes = [dtype_of(operand) for operand in types]
    floats = [dtype for dtype, letter in zip(dtypes, given, strict=True) if letter == "F"]
    floating = floats[0] if floats else F32
    require(floating in (F32, F64), f"{symbol} takes f32 or f64, not {floating}")
    wanted = [floating if letter == "F" else DTYPES[letter] for letter in given]
    require(dtypes == wanted, f"{symbol} takes {EXTERNS[symbol]}, not {listed(types)}")
    return (types[0].of(floating if result[0] == "F" else DTYPES[result[0]]),)
