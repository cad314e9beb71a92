"""The elementwise operators as instructions, a row of the table each: of a maker, the dtype, attributes and operands.

What `interpret.compute` says holds for each: integers wrap around, division by 0 gives 0, shifts by all bits or more
give 0 or the sign, a result is rounded once. Sums and products of floats may be fused into one rounding.
Neighbours: `externs` has the functions of libdevice, `formulas` those of floats, `casts` conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stator.tile.cpu import formulas
from stator.tile.cpu.casts import cast, register, rounded, to_odd
from stator.tile.cpu.code import Maker
from stator.tile.ir.types import F64, DType, Element, Pointer

Row: TypeAlias = Callable[..., str]


def _arithmetic(name: str, boolean: str) -> Row:
    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
        if dtype.is_float:
            return rounded(m, dtype, m.op(f"f{name} contract", register(dtype), a, b))
        return m.op(boolean if dtype.is_bool else name, register(dtype), a, b)

    return row


def _divide(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    return rounded(m, dtype, m.op("fdiv", register(dtype), a, b))


def divide_all(m: Maker, dtype: DType, a: str, b: str) -> str:
    """All lanes by one number, as products with its reciprocal: an ulp off at most.

    The divisor is brought to a size whose reciprocal is a normal number; the power of two that this takes goes into
    the product in two equal parts, so that neither factor leaves the range before the quotient does.
    """
    one = Maker(m.code, 0)
    size = one.intrinsic("fabs", "float", b)
    small = one.compare("olt", "float", size, one.number("float", 2.0**-60))
    great = one.compare("ogt", "float", size, one.number("float", 2.0**60))

    def power(exponent: int) -> str:
        upper = one.select(great, "float", one.number("float", 2.0**-exponent), one.number("float", 1.0))
        return one.select(small, "float", one.number("float", 2.0**exponent), upper)

    reciprocal = one.op("fdiv", "float", one.number("float", 1.0), one.op("fmul", "float", b, power(64)))
    half = m.splat("float", power(32))
    found = m.op("fmul", "float", m.op("fmul", "float", a, half), m.splat("float", reciprocal))
    return rounded(m, dtype, m.op("fmul", "float", found, half))


def _not_zero(m: Maker, type_: str, b: str, signed: bool, a: str) -> tuple[str, str]:
    """A divisor that nothing fails for, and whether it was 0."""
    zero = m.compare("eq", type_, b, m.number(type_, 0))
    unsafe = zero
    if signed:
        least = m.number(type_, -(1 << (int(type_[1:]) - 1)))
        wraps = m.op("and", "i1", m.compare("eq", type_, a, least), m.compare("eq", type_, b, m.number(type_, -1)))
        unsafe = m.op("or", "i1", zero, wraps)
    return m.select(unsafe, type_, m.number(type_, 1), b), zero


def _quotient(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    """Of vectors of up to 32 bits by f64, whose quotient is exact enough; there are no vector instructions for it."""
    type_, signed = register(dtype), dtype.kind == "int"
    safe, zero = _not_zero(m, type_, b, signed, a)
    if m.width and dtype.bits <= 32:
        to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        first, second = (m.convert(to, type_, "double", item) for item in (a, safe))
        found = m.convert(back, "double", type_, m.op("fdiv", "double", first, second))
    else:
        found = m.op("sdiv" if signed else "udiv", type_, a, safe)
    return m.select(zero, type_, m.number(type_, 0), found)


def _remainder(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    type_ = register(dtype)
    if dtype.is_bool:
        return m.number("i1", False)
    if dtype.is_float:
        if dtype == F64:
            return formulas.library(m, "fmod", a, b)
        wide = [m.convert("fpext", "float", "double", item) for item in (a, b)]
        return m.convert("fptrunc", "double", "float", formulas.library(m, "fmod", *wide))
    quotient = _quotient(m, dtype, attrs, a, b)
    found = m.op("sub", type_, a, m.op("mul", type_, quotient, b))
    return m.select(m.compare("eq", type_, b, m.number(type_, 0)), type_, m.number(type_, 0), found)


def _extreme(name: str, boolean: str) -> Row:
    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
        if dtype.is_bool:
            return m.op(boolean, "i1", a, b)
        if not dtype.is_float:
            return m.intrinsic(f"{'s' if dtype.kind == 'int' else 'u'}{name[:3]}", register(dtype), a, b)
        propagates = attrs.get("nan", "number") == "propagate"
        return m.intrinsic(name if propagates else f"{name[:3]}num", register(dtype), a, b)

    return row


_minimum, _maximum = _extreme("minimum", "and"), _extreme("maximum", "or")


def _clamp(m: Maker, dtype: DType, attrs: Mapping[str, Any], x: str, low: str, high: str) -> str:
    return _minimum(m, dtype, attrs, _maximum(m, dtype, attrs, x, low), high)


def _plain(name: str) -> Row:
    return lambda m, dtype, attrs, a, b: m.op(name, register(dtype), a, b)


def _not(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str) -> str:
    type_ = register(dtype)
    return m.op("xor", type_, a, m.number(type_, True if dtype.is_bool else -1))


def _shift(left: bool) -> Row:
    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, amount: str) -> str:
        type_, bits = register(dtype), dtype.bits
        inside = m.compare("ult", type_, amount, m.number(type_, bits))
        signs = not left and dtype.kind == "int"
        most = m.number(type_, bits - 1 if signs else 0)
        amount = m.select(inside, type_, amount, most)
        found = m.op("shl" if left else "ashr" if signs else "lshr", type_, a, amount)
        return found if signs else m.select(inside, type_, found, m.number(type_, 0))

    return row


def _absolute(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str) -> str:
    if dtype.is_float:
        return m.intrinsic("fabs", register(dtype), a)
    return m.intrinsic("abs", register(dtype), a, flag="false") if dtype.kind == "int" else a


def _negative(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str) -> str:
    if dtype.is_bool:
        return a
    type_ = register(dtype)
    return m.op("fneg", type_, a) if dtype.is_float else m.op("sub", type_, m.number(type_, 0), a)


def _high_bits(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    type_, wide = register(dtype), f"i{2 * dtype.bits}"
    first, second = (m.convert("sext" if dtype.kind == "int" else "zext", type_, wide, item) for item in (a, b))
    product = m.op("lshr", wide, m.op("mul", wide, first, second), m.number(wide, dtype.bits))
    return m.convert("trunc", wide, type_, product)


def _fma(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str, c: str) -> str:
    if dtype.bits >= 32:
        return m.fma(register(dtype), a, b, c)
    wide = [m.convert("fpext", "float", "double", item) for item in (a, b, c)]
    return rounded(m, dtype, to_odd(m, m.fma("double", *wide)))


_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def compare(m: Maker, op: str, element: Element, a: str, b: str) -> str:
    """A comparison of numbers or pointers."""
    if isinstance(element, DType) and element.is_float:
        return m.compare(_PREDICATES[op], register(element), a, b)
    signed = isinstance(element, DType) and element.kind == "int"
    predicate = op if op in ("eq", "ne") else f"{'s' if signed else 'u'}{op}"
    return m.compare(predicate, register(element), a, b)


def _function(name: str) -> Row:
    """A function of floats: of f32 by formula, of f64 by the C library."""

    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], x: str) -> str:
        if dtype == F64:
            return formulas.library(m, name, x)
        if name in formulas.IN_SINGLE:
            return rounded(m, dtype, formulas.IN_SINGLE[name](m, x))
        wide = formulas.IN_DOUBLE[name](m, m.convert("fpext", "float", "double", x))
        return rounded(m, dtype, m.convert("fptrunc", "double", "float", wide))

    return row


def _intrinsic(name: str) -> Row:
    return lambda m, dtype, attrs, x: rounded(m, dtype, m.intrinsic(name, register(dtype), x))


def _reciprocal_root(m: Maker, dtype: DType, attrs: Mapping[str, Any], x: str) -> str:
    type_ = register(dtype)
    return rounded(m, dtype, m.op("fdiv", type_, m.number(type_, 1.0), m.intrinsic("sqrt", type_, x)))


ROWS: dict[str, Row] = {
    "add": _arithmetic("add", "xor"), "sub": _arithmetic("sub", "xor"), "mul": _arithmetic("mul", "and"),
    "div": _divide, "div_rn": _divide, "idiv": _quotient, "rem": _remainder, "minimum": _minimum, "maximum": _maximum,
    "clamp": _clamp, "and": _plain("and"), "or": _plain("or"), "xor": _plain("xor"), "not": _not,
    "shl": _shift(left=True), "shr": _shift(left=False), "abs": _absolute, "neg": _negative, "mulhi": _high_bits,
    "fma": _fma, "sqrt": _intrinsic("sqrt"), "sqrt_rn": _intrinsic("sqrt"), "rsqrt": _reciprocal_root,
    "floor": _intrinsic("floor"), "ceil": _intrinsic("ceil"), "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    **{name: _function(name) for name in (*formulas.IN_SINGLE, *formulas.IN_DOUBLE)},
}  # fmt: skip


def bitcast(m: Maker, source: Element, target: Element, value: str) -> str:
    """The same bits as another element of as many."""
    if isinstance(source, Pointer) or isinstance(target, Pointer):
        return value
    bits = f"i{source.bits}"
    if source.name == "f16":
        value = m.bits("half", "i16", m.convert("fptrunc", "float", "half", value))
    elif source.name == "bf16":
        upper = m.op("lshr", "i32", m.bits("float", "i32", value), m.number("i32", 16))
        value = m.convert("trunc", "i32", "i16", upper)
    elif source.is_float and source.bits > 8:
        value = m.bits(register(source), bits, value)
    if target.name == "f16":
        return m.convert("fpext", "half", "float", m.bits("i16", "half", value))
    if target.name == "bf16":
        wide = m.convert("zext", "i16", "i32", value)
        return m.bits("i32", "float", m.op("shl", "i32", wide, m.number("i32", 16)))
    return m.bits(bits, register(target), value) if target.is_float and target.bits > 8 else value


__all__ = ["ROWS", "bitcast", "cast", "compare"]
