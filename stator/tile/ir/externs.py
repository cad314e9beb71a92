"""The functions of libdevice that kernels may call, by name, with what they take and give.

A function may have several signatures. In one, `F` is f32 or f64, the same throughout; other words are dtypes. Names
are those of `tl.extra.libdevice`; tiles go through elementwise. `_rn`, `_rz`, `_rd` and `_ru` round to nearest, to
zero, down and up. Integers that libdevice gives as 32 bits without a sign are i32, as Triton has them.
Neighbours: `operators` has `extern`, which calls one; `stator.tile.interpret.libdevice` says what each computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stator.tile.ir.core import Block
from stator.tile.ir.rules import TypeRule, dtype_of, listed
from stator.tile.ir.types import DTYPES, F32, F64, DType, Type

#: A signature, or several → the functions that have it; `_r*` stands for the four ways of rounding.
_GROUPS = {
    "F -> F": """acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv
        erfcx erfinv exp exp10 exp2 expm1 floor j0 j1 lgamma log log10 log1p log2 logb nearbyint normcdf normcdfinv
        rcbrt rcp_r* rint round rsqrt sin sinh sinpi sqrt sqrt_r* tan tanh tgamma trunc y0 y1""",
    "F F -> F": """add_r* atan2 copysign div_r* fdim fmod hypot mul_r* nextafter remainder rhypot sub_r*""",
    "F F F -> F": "fma fma_r* norm3d rnorm3d",
    "F F F F -> F": "norm4d rnorm4d",
    "F i32 -> F": "ldexp scalbn",
    "i32 F -> F": "jn yn",
    "F F -> F | F i32 -> F": "pow",
    "F -> i32": "ilogb isinf isnan signbit",
    "F -> i64": "llrint llround",
    "f32 -> i32": "finitef float2int_r* float2uint_r* float_as_int float_as_uint",
    "f64 -> i32": "isfinited double2int_r* double2uint_r* double2hiint double2loint",
    "f32 -> i64": "float2ll_r* float2ull_r*",
    "f64 -> i64": "double2ll_r* double2ull_r* double_as_longlong",
    "f32 -> f32": """fast_cosf fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_sinf fast_tanf fast_tanhf
        rsqrt_rn saturatef""",
    "f32 f32 -> f32": "fast_dividef fast_powf",
    "f64 -> f32": "double2float_r*",
    "f64 -> f64": "rcp64h",
    "i32 -> f32": "int2float_r* int_as_float",
    "u32 -> f32": "uint2float_r* uint_as_float",
    "i64 -> f32": "ll2float_r*",
    "u64 -> f32": "ull2float_r*",
    "i32 -> f64": "int2double_rn",
    "u32 -> f64": "uint2double_rn",
    "i64 -> f64": "ll2double_r* longlong_as_double",
    "u64 -> f64": "ull2double_r*",
    "i32 i32 -> f64": "hiloint2double",
    "i32 -> i32 | u32 -> i32 | i64 -> i32 | u64 -> i32": "clz ffs popc",
    "i32 -> i32 | u32 -> u32 | i64 -> i64 | u64 -> u64": "brev",
    "i32 -> i32 | i64 -> i64 | F -> F": "abs",
    "i32 i32 -> i32 | u32 u32 -> u32 | i64 i64 -> i64 | u64 u64 -> u64": "mulhi",
    "i32 i32 -> i32 | u32 u32 -> u32": "hadd mul24 rhadd",
    "i32 i32 u32 -> i32 | u32 u32 u32 -> u32": "sad",
    "i32 i32 i32 -> i32": "byte_perm",
}
_ROUNDINGS = ("rn", "rz", "rd", "ru")


def _names(names: str) -> list[str]:
    found = []
    for name in names.split():
        found += [name.replace("r*", way) for way in _ROUNDINGS] if name.endswith("_r*") else [name]
    return found


#: The name of a function → its signatures.
EXTERNS: dict[str, str] = {name: signature for signature, names in _GROUPS.items() for name in _names(names)}


def extern(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """The rule of `extern`."""
    symbol = attrs["symbol"]
    if symbol not in EXTERNS:
        raise TypeRule(f"there is no function {symbol}")
    if not all(operand.shape == types[0].shape for operand in types):
        raise TypeRule(f"{listed(types)} differ in shape")
    given = [dtype_of(operand) for operand in types]
    for signature in EXTERNS[symbol].split(" | "):
        result = _matched(signature, given)
        if result is not None:
            return (types[0].of(result),)
    raise TypeRule(f"{symbol} takes {EXTERNS[symbol]}, not {listed(types)}")


def _matched(signature: str, given: Sequence[DType]) -> DType | None:
    """What a signature gives for operands, if they are its own."""
    for floating in (F32, F64):
        wanted, result = (
            [floating if word == "F" else DTYPES[word] for word in side.split()] for side in signature.split("->")
        )
        if wanted == list(given):
            return result[0]
    return None
