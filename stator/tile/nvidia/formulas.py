"""Functions of floats and casts as a GPU computes them: its own instructions where they are exact enough.

`ex2.approx` is right to two ulps; what goes into it loses nothing on the way. Divisions and roots that may be an ulp or
two off are the approximate ones over the full range. Functions of f64, and those of f32 that no instruction is exact
enough for, are NVIDIA's where its library is found, else in `doubles`.
Neighbours: `elementwise` has the table, `stator.tile.cpu.formulas` what is shared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stator.tile.cpu import casts as shared_casts
from stator.tile.cpu import elementwise as shared
from stator.tile.cpu import formulas as shared_formulas
from stator.tile.cpu.casts import rounded
from stator.tile.cpu.code import Maker
from stator.tile.cpu.elementwise import Row
from stator.tile.ir.types import F32, F64, DType
from stator.tile.nvidia import libdevice
from stator.tile.nvidia.doubles import Doubles
from stator.tile.nvidia.powers import FUNCTIONS

_LETTERS = {"float": "f", "double": "d", "i16": "h", "i32": "r", "i64": "l"}
_LOG2E = 1.4426950408889634
#: What float32 does not have of log2(e).
_LOG2E_REST = 1.925963033500011e-08
#: Bits of the widest integers.
_WIDE = 64
#: The first architecture that has instructions for fp8.
FP8_SINCE = 89


def instruction(m: Maker, name: str, result: str, *args: tuple[str, str]) -> str:
    """An instruction of PTX without effects, on operands of these types."""
    places = ", ".join([f"${place}" for place in range(len(args) + 1)])
    constraints = ",".join([f"={_LETTERS[result]}", *[_LETTERS[type_] for type_, _ in args]])
    given = ", ".join([f"{type_} {value}" for type_, value in args])
    return m.code.value(f'call {result} asm "{name} {places};", "{constraints}"({given}) #1')


def _single(name: str) -> Row:
    """An instruction on f32, of numbers of 32 bits and less."""

    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], *args: str) -> str:
        if dtype == F64:
            return shared.ROWS[_EXACT[name]](m, dtype, attrs, *args)
        return rounded(m, dtype, instruction(m, name, "float", *[("float", arg) for arg in args]))

    return row


#: An approximate instruction → the operator that it is, which f64 has exactly.
_EXACT = {"div.full.f32": "div", "sqrt.approx.f32": "sqrt", "rsqrt.approx.f32": "rsqrt"}


def exp2(m: Maker, x: str) -> str:
    return instruction(m, "ex2.approx.f32", "float", ("float", x))


def exp(m: Maker, x: str) -> str:
    """2 ** t (1 + rest ln 2), where t is the product with log2(e) as rounded, and rest what that has lost."""
    for name, limit in (("minimum", 90.0), ("maximum", -106.0)):
        x = m.intrinsic(name, "float", x, m.number("float", limit))
    product = m.op("fmul", "float", x, m.number("float", _LOG2E))
    rest = m.fma("float", x, m.number("float", _LOG2E), m.op("fneg", "float", product))
    rest = m.fma("float", x, m.number("float", _LOG2E_REST), rest)
    power = exp2(m, product)
    small = m.op("fmul", "float", rest, m.number("float", math.log(2)))
    return m.fma("float", power, small, power)


#: Functions of f32 that are computed in f32, and those of f64 numbers as exact as results in f32 need.
_IN_SINGLE = {"exp": exp, "exp2": exp2, "log": shared_formulas.log, "log2": shared_formulas.log2}
_IN_DOUBLE = {"tanh": shared_formulas.tanh, "erf": shared_formulas.erf}
#: Functions of f32 that an instruction computes exactly enough, whatever library is there.
_BY_INSTRUCTION = frozenset(["exp", "exp2"])


def in_double(m: Maker, name: str, dtype: DType, *args: str) -> str:
    """A function of `doubles`, of f32 (and what is held as that) or f64, in the same dtype."""
    function, d = FUNCTIONS[name], Doubles(m)
    if dtype == F64:
        return function(d, *args)
    wide = [m.convert("fpext", "float", "double", arg) for arg in args]
    return rounded(m, dtype, m.convert("fptrunc", "double", "float", function(d, *wide)))


def _function(name: str) -> Row:
    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], x: str) -> str:
        if libdevice.has(name) and (dtype == F64 or name not in _BY_INSTRUCTION):
            kept = F64 if dtype == F64 else F32
            return rounded(m, dtype, libdevice.call(m, name, [kept], kept, [x]))
        if dtype != F64 and name in _IN_SINGLE:
            return rounded(m, dtype, _IN_SINGLE[name](m, x))
        if dtype != F64 and name in _IN_DOUBLE:
            wide = _IN_DOUBLE[name](m, m.convert("fpext", "float", "double", x))
            return rounded(m, dtype, m.convert("fptrunc", "double", "float", wide))
        return in_double(m, name, dtype, x)

    return row


def _remainder(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    return in_double(m, "fmod", dtype, a, b) if dtype.is_float else shared.ROWS["rem"](m, dtype, attrs, a, b)


def _high_bits(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, b: str) -> str:
    """The instruction; LLVM would take the wide product and shift it, which takes two."""
    name = {("int", 32): "i", ("uint", 32): "ui", ("int", 64): "ll", ("uint", 64): "ull"}[dtype.kind, dtype.bits]
    type_ = f"i{dtype.bits}"
    return m.code.call(type_, f"llvm.nvvm.mulhi.{name}", (type_, a), (type_, b))


def _shift(name: str) -> Row:
    """Shifts of 64 bits by an instruction, which takes 32 bits of the amount, and all from 64 on as that.

    LLVM leaves out a choice between the result and what is beyond all bits, as the instruction makes it, but cuts the
    amount to 32 bits first: 1 << 2**32 would be 1.
    """

    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], a: str, amount: str) -> str:
        if dtype.bits != _WIDE or amount.isdigit():
            return shared.ROWS[name](m, dtype, attrs, a, amount)
        most = m.convert("trunc", "i64", "i32", m.intrinsic("umin", "i64", amount, str(_WIDE)))
        letter = "b" if name == "shl" else "s" if dtype.kind == "int" else "u"
        return instruction(m, f"{name}.{letter}{_WIDE}", "i64", ("i64", a), ("i32", most))

    return row


ROWS: dict[str, Row] = {
    **{name: _function(name) for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")},
    "div": _single("div.full.f32"), "sqrt": _single("sqrt.approx.f32"), "rsqrt": _single("rsqrt.approx.f32"),
    "rem": _remainder, "mulhi": _high_bits, "shl": _shift("shl"), "shr": _shift("shr"),
}  # fmt: skip


# ---- casts

_FP8 = {"f8e4nv": "e4m3x2", "f8e5": "e5m2x2"}


def cast(m: Maker, architecture: int, source: DType, target: DType, rounding: str, value: str) -> str:
    """The value in another dtype."""
    if architecture >= FP8_SINCE and source.name in _FP8 and target != source:
        value, source = _from_fp8(m, source, value), F32
    narrow = source.is_float and 16 <= source.bits <= 32 and target.name in _FP8
    if architecture >= FP8_SINCE and narrow and rounding == "rtne":
        name = f"cvt.rn.satfinite.{_FP8[target.name]}.f32"
        both = instruction(m, name, "i16", ("float", m.number("float", 0.0)), ("float", value))
        return m.convert("trunc", "i16", "i8", both)
    return shared_casts.cast(m, source, target, rounding, value)


def _from_fp8(m: Maker, source: DType, value: str) -> str:
    """By f16, which has all numbers of both."""
    wide = m.convert("zext", "i8", "i16", value)
    both = instruction(m, f"cvt.rn.f16x2.{_FP8[source.name]}", "i32", ("i16", wide))
    half = m.bits("i16", "half", m.convert("trunc", "i32", "i16", both))
    return m.convert("fpext", "half", "float", half)
