"""Functions of floats as instructions: exponentials and logarithms in f32 to about one ulp, others of f32 in f64.

The polynomials are least-squares fits made for this file, with weights that make the greatest relative error least; in
f64 they have as many terms as a result in f32 needs. Functions of f64 are the C library's.
Neighbours: `elementwise` has the table of operators that calls these.
"""

from __future__ import annotations

import math

from stator.tile.cpu.code import Maker

_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
#: ln 2 in two parts, of which the first has so few bits that a product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
_PI2_HIGH, _PI2_LOW = 1.5707963267948966, 6.123233995736766e-17
_EXP = (1.0, 1.0, 0.4999999203199637, 0.16666419190678225, 0.041668231873937464, 0.00837489834109555,
        0.0013836737981283071)  # fmt: skip
_EXP2 = (1.0, 0.6931472058868619, 0.24022646867658434, 0.05550328450877883, 0.009618490412431138, 0.0013400063279882656,
         0.00015345692202353004)  # fmt: skip
_LOG = (0.9999999999608054, -0.4999998825807281, 0.333333258952592, -0.2500158983629157, 0.2000197731999216,
        -0.16608932747371433, 0.14181599800709685, -0.13243935697485165, 0.1290648633643157,
        -0.07622208502252899)  # fmt: skip
_LOG2 = tuple([coefficient * _LOG2E for coefficient in _LOG])
_EXP_F64 = (1.0, 1.0, 0.4999999999945432, 0.1666666666781709, 0.0416666670349184, 0.008333333007442774,
            0.001388880242349364, 0.0001984158905836454, 2.488420602907334e-05, 2.7485656809654632e-06)  # fmt: skip
_SIN = (0.9999999999954041, -0.16666666630153834, 0.008333328662132593, -0.00019839169966734478, 2.7170757414402176e-06)
_COS = (0.9999999999999334, -0.4999999999926368, 0.041666666532572526, -0.0013888879877755214, 2.4798832717914895e-05,
        -2.7167165114838726e-07)  # fmt: skip
_ERF = (0.35353099567015106, -0.17657623529409414, 0.13167511293807488, -0.10771031868280437, 0.0902090824058757,
        -0.07473010728007007, 0.05988627033818482, -0.04574680005148912, 0.03306182370262569, -0.02255396612088135,
        0.014355054918278685, -0.008400798200062181, 0.004821089608407121, -0.0028911815543736525,
        0.0013626775621827947, -0.0003363601955601808, 0.00019944248920103068, -0.00024381788857265134,
        8.803185568884622e-05)  # fmt: skip


def library(m: Maker, name: str, *args: str) -> str:
    """A function of the C library, on f64."""
    return m.each(name, "double", *[("double", arg) for arg in args])


def _number(m: Maker, value: float) -> str:
    return m.number("float", value)


def _clamped(m: Maker, type_: str, x: str, low: float, high: float) -> str:
    """Between two numbers; a NaN stays one."""
    for predicate, limit in (("ogt", high), ("olt", low)):
        bound = m.number(type_, limit)
        x = m.select(m.compare(predicate, type_, x, bound), type_, bound, x)
    return x


def _to_nearest(m: Maker, type_: str, x: str, factor: float = 1.0) -> tuple[str, str]:
    """The integer nearest to a product, as a float and as an integer of as many bits; what is no number gives any."""
    magic, bits = (1.5 * 2.0**23, "i32") if type_ == "float" else (1.5 * 2.0**52, "i64")
    shifted = m.fma(type_, x, m.number(type_, factor), m.number(type_, magic))
    whole = m.op("fsub", type_, shifted, m.number(type_, magic))
    base = m.bits(type_, bits, m.number(type_, magic))
    return whole, m.op("sub", bits, m.bits(type_, bits, shifted), base)


def _power(m: Maker, type_: str, exponent: str) -> str:
    """2 to an integer that a normal number has as its exponent."""
    bits, bias, mantissa = ("i32", 127, 23) if type_ == "float" else ("i64", 1023, 52)
    biased = m.op("add", bits, exponent, m.number(bits, bias))
    return m.bits(bits, type_, m.op("shl", bits, biased, m.number(bits, mantissa)))


def _scaled(m: Maker, value: str, whole: str, exponent: str) -> str:
    """Times a power of 2, in two steps: the result may be subnormal. AVX-512 has an instruction for it."""
    if m.width == 16:
        kind = m.type("float")
        operands = [(kind, value), (kind, whole), (kind, "poison"), ("i16", "-1"), ("i32", "4")]
        return m.code.call(kind, "llvm.x86.avx512.mask.scalef.ps.512", *operands)
    half = m.op("ashr", "i32", exponent, m.number("i32", 1))
    rest = m.op("sub", "i32", exponent, half)
    return m.op("fmul", "float", m.op("fmul", "float", value, _power(m, "float", half)), _power(m, "float", rest))


def exp(m: Maker, x: str) -> str:
    x = _clamped(m, "float", x, -104.0, 89.0)
    whole, exponent = _to_nearest(m, "float", x, _LOG2E)
    rest = m.fma("float", whole, _number(m, -_LN2_HIGH), x)
    rest = m.fma("float", whole, _number(m, -_LN2_LOW), rest)
    return _scaled(m, m.polynomial("float", rest, _EXP), whole, exponent)


def exp2(m: Maker, x: str) -> str:
    x = _clamped(m, "float", x, -151.0, 129.0)
    whole, exponent = _to_nearest(m, "float", x)
    rest = m.op("fsub", "float", x, whole)
    return _scaled(m, m.polynomial("float", rest, _EXP2), whole, exponent)


def _logarithm(m: Maker, x: str, coefficients: tuple[float, ...], parts: tuple[float, ...]) -> str:
    """f * P(f) + e * parts, where x is (1 + f) * 2 ** e with 1 + f around 1."""
    small = m.compare("olt", "float", x, _number(m, 2.0**-126))
    scaled = m.select(small, "float", m.op("fmul", "float", x, _number(m, 2.0**23)), x)
    bits = m.bits("float", "i32", scaled)
    offset = m.op("sub", "i32", bits, m.number("i32", 0x3F3504F3))
    exponent = m.op("ashr", "i32", offset, m.number("i32", 23))
    reduced = m.op("sub", "i32", bits, m.op("shl", "i32", exponent, m.number("i32", 23)))
    rest = m.op("fsub", "float", m.bits("i32", "float", reduced), _number(m, 1.0))
    shift = m.select(small, "i32", m.number("i32", 23), m.number("i32", 0))
    power = m.convert("sitofp", "i32", "float", m.op("sub", "i32", exponent, shift))
    product = m.op("fmul", "float", rest, m.polynomial("float", rest, coefficients))
    for part in reversed(parts):
        product = m.fma("float", power, _number(m, part), product)
    infinite = m.compare("oeq", "float", x, _number(m, math.inf))
    found = m.select(infinite, "float", x, product)
    found = m.select(m.compare("oeq", "float", x, _number(m, 0.0)), "float", _number(m, -math.inf), found)
    wrong = m.compare("ult", "float", x, _number(m, 0.0))
    return m.select(wrong, "float", _number(m, math.nan), found)


def log(m: Maker, x: str) -> str:
    return _logarithm(m, x, _LOG, (_LN2_HIGH, _LN2_LOW))


def log2(m: Maker, x: str) -> str:
    return _logarithm(m, x, _LOG2, (1.0,))


def _exp_f64(m: Maker, x: str) -> str:
    """Of f64 numbers from 0 to 50, to as many bits as f32 needs."""
    whole, exponent = _to_nearest(m, "double", x, _LOG2E)
    rest = m.fma("double", whole, m.number("double", -_LN2), x)
    return m.op("fmul", "double", m.polynomial("double", rest, _EXP_F64), _power(m, "double", exponent))


def tanh(m: Maker, x: str) -> str:
    """Of f64: 1 - 2 / (exp(2 z) + 1) of the magnitude z, and z - z³/3 + 2z⁵/15 of small ones."""
    z = _clamped(m, "double", m.intrinsic("fabs", "double", x), 0.0, 20.0)
    power = _exp_f64(m, m.op("fadd", "double", z, z))
    one = m.number("double", 1.0)
    quotient = m.op("fdiv", "double", m.number("double", 2.0), m.op("fadd", "double", power, one))
    square = m.op("fmul", "double", z, z)
    near = m.op("fmul", "double", z, m.polynomial("double", square, (1.0, -1 / 3, 2 / 15)))
    small = m.compare("olt", "double", z, m.number("double", 0.01))
    found = m.select(small, "double", near, m.op("fsub", "double", one, quotient))
    return m.intrinsic("copysign", "double", found, x)


def erf(m: Maker, x: str) -> str:
    """Of f64: x times a polynomial of its square; beyond 4 the result is 1 in f32."""
    x = _clamped(m, "double", x, -4.0, 4.0)
    square = m.fma("double", m.op("fmul", "double", x, x), m.number("double", 0.125), m.number("double", -1.0))
    return m.op("fmul", "double", x, m.polynomial("double", square, _ERF))


def _circular(m: Maker, x: str, quarter: int) -> str:
    """The sine (or from the first quarter on, the cosine) of f64 numbers up to 2 ** 50."""
    whole, count = _to_nearest(m, "double", x, 1 / _PI2_HIGH)
    rest = m.fma("double", whole, m.number("double", -_PI2_HIGH), x)
    rest = m.fma("double", whole, m.number("double", -_PI2_LOW), rest)
    square = m.op("fmul", "double", rest, rest)
    sine = m.op("fmul", "double", rest, m.polynomial("double", square, _SIN))
    cosine = m.polynomial("double", square, _COS)
    place = m.op("add", "i64", count, m.number("i64", quarter))
    odd = m.compare("ne", "i64", m.op("and", "i64", place, m.number("i64", 1)), m.number("i64", 0))
    found = m.select(odd, "double", cosine, sine)
    negative = m.compare("ne", "i64", m.op("and", "i64", place, m.number("i64", 2)), m.number("i64", 0))
    return m.select(negative, "double", m.op("fneg", "double", found), found)


def _circular_anywhere(m: Maker, x: str, quarter: int) -> str:
    """By the C library where any number is too great for the formula, or is none."""
    code = m.code
    fits = m.compare("olt", "double", m.intrinsic("fabs", "double", x), m.number("double", 2.0**50))
    kind = m.type("double")
    if m.width:
        fits = code.call("i1", f"llvm.vector.reduce.and.v{m.width}i1", (m.type("i1"), fits))
    place = code.memory(kind)
    code.store(kind, _circular(m, x, quarter), place)
    with code.when(code.value(f"xor i1 {fits}, true")):
        code.store(kind, library(m, "cos" if quarter else "sin", x), place)
    return code.load(kind, place)


def sin(m: Maker, x: str) -> str:
    return _circular_anywhere(m, x, 0)


def cos(m: Maker, x: str) -> str:
    return _circular_anywhere(m, x, 1)


#: Functions of f32 numbers.
IN_SINGLE = {"exp": exp, "exp2": exp2, "log": log, "log2": log2}
#: Functions of f64 numbers as exact as results in f32 need.
IN_DOUBLE = {"tanh": tanh, "erf": erf, "sin": sin, "cos": cos}
