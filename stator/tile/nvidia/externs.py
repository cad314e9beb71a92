"""The functions of libdevice that there is code for on a GPU: operators, functions of f64, and instructions of PTX.

Where NVIDIA's library is found, most are its own. What rounds in a direction is an instruction here.
Neighbours: `libdevice` links that library, `doubles` has the functions of f64, `stator.tile.cpu.externs` those that are
shared; `ir.externs` has the signatures, `interpret.libdevice` the meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stator.tile.cpu import externs as shared
from stator.tile.cpu.casts import cast, register
from stator.tile.cpu.code import Maker
from stator.tile.ir.core import Location
from stator.tile.ir.types import F64, I32, I64, U64, DType
from stator.tile.nvidia import doubles, formulas, libdevice, powers

#: A fast function → the one that it is.
_FAST = {"fast_tanf": "tan", "fast_exp10f": "exp10", "fast_log10f": "log10", "fast_powf": "pow"}
#: A function → the operator of `formulas` that it is.
_OPERATORS = {
    **{name: name for name in "exp exp2 log log2 sin cos tanh erf sqrt rsqrt".split()},
    "fmod": "rem", "fast_cosf": "cos", "fast_sinf": "sin", "fast_tanhf": "tanh", "fast_expf": "exp",
    "fast_logf": "log", "fast_log2f": "log2", "fast_dividef": "div", "rsqrt_rn": "rsqrt",
}  # fmt: skip
_WAYS = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}
_TO_INTEGER = {"rn": "rni", "rz": "rzi", "rd": "rmi", "ru": "rpi"}
_KINDS = {"int": ("s32", "i32"), "uint": ("u32", "i32"), "ll": ("s64", "i64"), "ull": ("u64", "i64")}
_FLOATS = {"float": ("f32", "float"), "double": ("f64", "double")}
_DIRECTED = re.compile(r"(add|sub|mul|div|fma|rcp|sqrt)_(rn|rz|rd|ru)")
_CONVERTS = re.compile(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(rn|rz|rd|ru)")


def extern(
    m: Maker, symbol: str, types: Sequence[DType], result: DType, args: Sequence[str], location: Location | None
) -> str:
    """A function on numbers."""
    dtype = types[0]
    name = _FAST.get(symbol, symbol)
    known = "powi" if symbol == "pow" and types[1] == I32 else symbol
    if libdevice.has(known):
        return libdevice.call(m, known, types, result, args)
    if name in _OPERATORS:
        return formulas.ROWS[_OPERATORS[name]](m, dtype, {}, *args)
    if name == "pow" and types[1] != dtype:
        return formulas.in_double(m, name, dtype, args[0], cast(m, types[1], dtype, "rtne", args[1]))
    if name in powers.FUNCTIONS:
        return formulas.in_double(m, name, dtype, *args)
    if name in ("rhypot", "rnorm3d", "rnorm4d"):
        return _reciprocal_length(m, dtype, args)
    match = _DIRECTED.fullmatch(symbol)
    if match is not None:
        return _directed(m, match[1], match[2], dtype, args)
    match = _CONVERTS.fullmatch(symbol)
    if match is not None:
        return _converted(m, match[1], match[2], match[3], args[0])
    if symbol in _INTEGERS:
        return _INTEGERS[symbol](m, dtype, *args)
    return shared.extern(m, symbol, types, result, args, location)


def _reciprocal_length(m: Maker, dtype: DType, args: Sequence[str]) -> str:
    d = doubles.Doubles(m)
    wide = [arg if dtype == F64 else m.convert("fpext", "float", "double", arg) for arg in args]
    found = d.div(d.num(1.0), powers.hypot(d, *wide))
    return found if dtype == F64 else m.convert("fptrunc", "double", "float", found)


def _directed(m: Maker, op: str, way: str, dtype: DType, args: Sequence[str]) -> str:
    type_, suffix = register(dtype), f"f{dtype.bits}"
    if op == "sub":
        op, args = "add", [args[0], m.op("fneg", type_, args[1])]
    return formulas.instruction(m, f"{op}.{_WAYS[way]}.{suffix}", type_, *[(type_, arg) for arg in args])


def _converted(m: Maker, source: str, target: str, way: str, value: str) -> str:
    (given, before), (wanted, after) = ({**_KINDS, **_FLOATS}[name] for name in (source, target))
    if target in _KINDS:
        found = formulas.instruction(m, f"cvt.{_TO_INTEGER[way]}.{wanted}.{given}", after, (before, value))
        nan = m.compare("uno", before, value, value)
        return m.select(nan, after, "0", found)
    if (source, target) in (("int", "double"), ("uint", "double")):
        return m.convert("sitofp" if source == "int" else "uitofp", "i32", "double", value)
    return formulas.instruction(m, f"cvt.{_WAYS[way]}.{wanted}.{given}", after, (before, value))


# ---- integers


def _average(up: int) -> Callable[..., str]:
    def row(m: Maker, dtype: DType, a: str, b: str) -> str:
        first, second = (cast(m, dtype, _wide(dtype), "rtne", item) for item in (a, b))
        total = m.op("add", "i64", m.op("add", "i64", first, second), str(up))
        shifted = m.op("ashr" if dtype.kind == "int" else "lshr", "i64", total, "1")
        return m.convert("trunc", "i64", "i32", shifted)

    return row


def _wide(dtype: DType) -> DType:
    return I64 if dtype.kind == "int" else U64


def _first_set(m: Maker, dtype: DType, a: str) -> str:
    type_ = register(dtype)
    place = m.op("add", type_, m.intrinsic("cttz", type_, a, flag="false"), "1")
    found = m.select(m.compare("eq", type_, a, "0"), type_, "0", place)
    return found if type_ == "i32" else m.convert("trunc", type_, "i32", found)


def _of_24_bits(m: Maker, dtype: DType, a: str, b: str) -> str:
    shift = "ashr" if dtype.kind == "int" else "lshr"
    first, second = (m.op(shift, "i32", m.op("shl", "i32", item, "8"), "8") for item in (a, b))
    return m.op("mul", "i32", first, second)


def _differences(m: Maker, dtype: DType, a: str, b: str, c: str) -> str:
    kind = "s" if dtype.kind == "int" else "u"
    high, low = (m.intrinsic(f"{kind}{name}", "i32", a, b) for name in ("max", "min"))
    return m.op("add", "i32", m.op("sub", "i32", high, low), c)


def _bytes(m: Maker, dtype: DType, a: str, b: str, selector: str) -> str:
    plain = m.op("and", "i32", selector, str(0x7777))
    return formulas.instruction(m, "prmt.b32", "i32", ("i32", a), ("i32", b), ("i32", plain))


def _high_word(m: Maker, dtype: DType, a: str) -> str:
    bits = m.op("lshr", "i64", m.bits("double", "i64", a), "32")
    return m.convert("trunc", "i64", "i32", bits)


def _low_word(m: Maker, dtype: DType, a: str) -> str:
    return m.convert("trunc", "i64", "i32", m.bits("double", "i64", a))


def _of_words(m: Maker, dtype: DType, high: str, low: str) -> str:
    first, second = (m.convert("zext", "i32", "i64", item) for item in (high, low))
    return m.bits("i64", "double", m.op("or", "i64", m.op("shl", "i64", first, "32"), second))


def _reciprocal_high(m: Maker, dtype: DType, a: str) -> str:
    found = m.op("fdiv", "double", m.number("double", 1.0), a)
    kept = m.op("and", "i64", m.bits("double", "i64", found), str(-(1 << 32)))
    return m.bits("i64", "double", kept)


def _saturated(m: Maker, dtype: DType, a: str) -> str:
    low = m.intrinsic("maxnum", "float", a, m.number("float", 0.0))
    found = m.intrinsic("minnum", "float", low, m.number("float", 1.0))
    return m.select(m.compare("uno", "float", a, a), "float", m.number("float", 0.0), found)


def _exponent(m: Maker, dtype: DType, a: str) -> tuple[str, str]:
    """The exponent of a number that is not 0, as i64, and its magnitude as f64."""
    wide = a if dtype == F64 else m.convert("fpext", "float", "double", a)
    size = m.intrinsic("fabs", "double", wide)
    small = m.compare("olt", "double", size, m.number("double", 2.0**-1022))
    scaled = m.select(small, "double", m.op("fmul", "double", size, m.number("double", 2.0**54)), size)
    found = m.op("sub", "i64", m.op("lshr", "i64", m.bits("double", "i64", scaled), "52"), "1023")
    return m.op("sub", "i64", found, m.select(small, "i64", "54", "0")), size


def _logb(m: Maker, dtype: DType, a: str) -> str:
    exponent, size = _exponent(m, dtype, a)
    found = m.convert("sitofp", "i64", "double", exponent)
    finite = m.compare("olt", "double", size, m.number("double", float("inf")))
    found = m.select(finite, "double", found, size)
    found = m.select(m.compare("oeq", "double", size, m.number("double", 0.0)), "double",
                     m.number("double", float("-inf")), found)  # fmt: skip
    return found if dtype == F64 else m.convert("fptrunc", "double", "float", found)


def _ilogb(m: Maker, dtype: DType, a: str) -> str:
    exponent, size = _exponent(m, dtype, a)
    found = m.convert("trunc", "i64", "i32", exponent)
    infinite = m.compare("oeq", "double", size, m.number("double", float("inf")))
    found = m.select(infinite, "i32", str(2**31 - 1), found)
    zero = m.compare("oeq", "double", size, m.number("double", 0.0))
    none = m.op("or", "i1", zero, m.compare("uno", "double", size, size))
    return m.select(none, "i32", str(-(2**31)), found)


def _scaled(m: Maker, dtype: DType, a: str, exponent: str) -> str:
    """In f64 for f32; what is subnormal is rounded once, for all steps but the last are exact."""
    d = doubles.Doubles(m)
    wide = a if dtype == F64 else m.convert("fpext", "float", "double", a)
    for name, limit in (("smin", 2200), ("smax", -2200)):
        exponent = m.intrinsic(name, "i32", exponent, str(limit))
    whole = m.convert("sitofp", "i32", "double", exponent)
    found = d.scaled(wide, whole)
    return found if dtype == F64 else m.convert("fptrunc", "double", "float", found)


def _to_long(name: str) -> Callable[..., str]:
    def row(m: Maker, dtype: DType, a: str) -> str:
        type_ = register(dtype)
        whole = m.intrinsic(name, type_, a)
        return m.code.call("i64", f"llvm.fptosi.sat.i64.{m.suffix(type_)}", (type_, whole))

    return row


def _next(m: Maker, dtype: DType, a: str, b: str) -> str:
    """The neighbour of a number towards another one."""
    type_, bits = register(dtype), f"i{dtype.bits}"
    word = m.bits(type_, bits, a)
    size = m.intrinsic("fabs", type_, a)
    outward = m.op("xor", "i1", m.compare("olt", type_, a, b), m.compare("slt", bits, word, "0"))
    moved = m.op("add", bits, word, m.select(outward, bits, "1", "-1"))
    least = m.intrinsic("copysign", type_, m.bits(bits, type_, "1"), b)
    found = m.select(m.compare("oeq", type_, size, m.number(type_, 0.0)), type_, least, m.bits(bits, type_, moved))
    found = m.select(m.compare("oeq", type_, a, b), type_, b, found)
    nan = m.op("fadd", type_, a, b)
    return m.select(m.compare("uno", type_, a, b), type_, nan, found)


_INTEGERS: dict[str, Callable[..., str]] = {
    "hadd": _average(0), "rhadd": _average(1), "ffs": _first_set, "mul24": _of_24_bits, "sad": _differences,
    "byte_perm": _bytes, "double2hiint": _high_word, "double2loint": _low_word, "hiloint2double": _of_words,
    "rcp64h": _reciprocal_high, "saturatef": _saturated, "logb": _logb, "ilogb": _ilogb, "ldexp": _scaled,
    "scalbn": _scaled, "llrint": _to_long("roundeven"), "llround": _to_long("round"), "nextafter": _next,
}  # fmt: skip
