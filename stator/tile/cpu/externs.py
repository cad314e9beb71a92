"""The functions of libdevice that there is code for: by the operators, by LLVM, or by the C library in f64.

Those that round in directions, and those that no C library has, are refused: the interpreter has them.
Neighbours: `elementwise` has the operators; `ir.externs` the signatures, `interpret.libdevice` the meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.cpu import elementwise, formulas
from stator.tile.cpu.casts import cast, from_double, register
from stator.tile.cpu.code import Maker
from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Location
from stator.tile.ir.types import F64, I32, DType

#: A function → the operator that it is.
_OPERATORS = {
    **{name: name for name in "exp exp2 log log2 sin cos tanh erf sqrt rsqrt floor ceil trunc abs mulhi fma".split()},
    "rint": "round", "nearbyint": "round", "fmod": "rem", "fast_cosf": "cos", "fast_sinf": "sin", "fast_tanhf": "tanh",
    "fast_expf": "exp", "fast_logf": "log", "fast_log2f": "log2", "fast_dividef": "div_rn", "rsqrt_rn": "rsqrt",
    "add_rn": "add", "sub_rn": "sub", "mul_rn": "mul", "div_rn": "div_rn", "sqrt_rn": "sqrt_rn", "fma_rn": "fma",
}  # fmt: skip
#: A function → that of the C library, on f64.
_LIBRARY = {
    **{name: name for name in """acos acosh asin asinh atan atanh atan2 cbrt cosh sinh tan exp10 expm1 log1p log10 erfc
       fdim hypot remainder pow""".split()},
    "fast_tanf": "tan", "fast_exp10f": "exp10", "fast_log10f": "log10", "fast_powf": "pow",
}  # fmt: skip
_BITS = {"float_as_int", "float_as_uint", "double_as_longlong", "int_as_float", "uint_as_float", "longlong_as_double"}


def extern(
    m: Maker, symbol: str, types: Sequence[DType], result: DType, args: Sequence[str], location: Location | None
) -> str:
    """A function on lanes."""
    dtype, type_ = types[0], register(types[0])
    if symbol in _OPERATORS:
        return elementwise.ROWS[_OPERATORS[symbol]](m, dtype, {}, *args)
    if symbol in _BITS:
        return elementwise.bitcast(m, dtype, result, args[0])
    if symbol in _LIBRARY and all(each.is_float or each == I32 for each in types):
        wide = [cast(m, each, F64, "rtne", arg) for each, arg in zip(types, args, strict=True)]
        return from_double(m, result, formulas.library(m, _LIBRARY[symbol], *wide))
    match symbol:
        case "round":
            return m.intrinsic("round", type_, *args)
        case "copysign":
            return m.intrinsic("copysign", type_, *args)
        case "isnan":
            return _truth(m, m.compare("uno", type_, args[0], args[0]))
        case "isinf":
            return _truth(m, m.compare("oeq", type_, m.intrinsic("fabs", type_, *args), m.number(type_, float("inf"))))
        case "finitef" | "isfinited":
            return _truth(m, m.compare("olt", type_, m.intrinsic("fabs", type_, *args), m.number(type_, float("inf"))))
        case "signbit":
            bits = f"i{dtype.bits}"
            return _truth(m, m.compare("slt", bits, m.bits(type_, bits, args[0]), m.number(bits, 0)))
        case "popc":
            return cast(m, dtype, I32, "rtne", m.intrinsic("ctpop", type_, *args))
        case "clz":
            return cast(m, dtype, I32, "rtne", m.intrinsic("ctlz", type_, *args, flag="false"))
        case "brev":
            return m.intrinsic("bitreverse", type_, *args)
    raise Refused("extern", f"there is no code for the function {symbol}", location)


def _truth(m: Maker, condition: str) -> str:
    return m.convert("zext", "i1", "i32", condition)
