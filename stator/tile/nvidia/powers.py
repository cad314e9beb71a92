"""Powers, roots, lengths, remainders and the error function of f64 numbers for GPUs, and the table of all functions.

They are right to a few ulps; `pow`, whose logarithm has some 60 bits, to more where its result is extreme.
Neighbours: `doubles` has what these are made of; `formulas` and `externs` look into the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stator.tile.nvidia import doubles
from stator.tile.nvidia.doubles import EXP, LN2_HIGH, LN2_LOW, LOG, Doubles, exp, log, mantissa, reduced

#: erf(x) / x of x * x, up to 1.
_ERF = (1.1283791670955126, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777, 0.0052239776071164225,
        -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06,
        -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10)  # fmt: skip
#: (1 + 2x) exp(x * x) erfc(x) by Chebyshev's polynomials of (x - 4) / (x + 4), from 0 on.
_ERFCX = (1.1774832005374487, -0.007260796620301901, -0.081265123236185, 0.06009212804122225, -0.02875393558027666,
          0.01059566336347286, -0.003136927294554264, 0.0007456494372536184, -0.0001369696503010054,
          1.7183861600300937e-05, -7.158364623450346e-07, -2.4261399442449534e-07, 5.576570939570356e-08,
          -2.105786951380952e-09, -1.1717889351884938e-09, 1.9098355172460467e-10, 1.4088717642131675e-11,
          -6.901108321187371e-12, 9.16795821001815e-14, 2.1454509793668152e-13, -1.471652885963255e-14,
          -6.669011763521416e-15, 7.492138647534052e-16, 2.3020286841397597e-16)  # fmt: skip


# ---- powers and lengths


def cbrt(d: Doubles, x: str) -> str:
    size = d.abs(x)
    plain = d.m.op("or", "i1", d.is_("oeq", size, 0.0), d.is_("uge", size, math.inf))
    safe = d.pick(plain, 1.0, size)
    near = exp(d, d.mul(log(d, safe), d.num(1 / 3)))
    square = d.mul(near, near)
    rest = d.fma(square, near, d.neg(safe))
    near = d.sub(near, d.div(rest, d.mul(square, d.num(3.0))))
    return d.pick(plain, x, d.sign_of(near, x))


def rcbrt(d: Doubles, x: str) -> str:
    return d.div(d.num(1.0), cbrt(d, x))


def pow(d: Doubles, x: str, y: str) -> str:
    """e to y times the logarithm in two parts; signs, zeros and infinities by cases."""
    m, size = d.m, d.abs(x)
    safe = d.pick(d.is_("oeq", size, 0.0), 1.0, d.pick(d.is_("olt", size, math.inf), size, 1.0))
    high, low = _log_in_parts(d, safe)
    clamped = d.clamp(y, -(2.0**80), 2.0**80)
    product, error = d.dekker(high, clamped)
    error = d.fma(low, clamped, error)
    product = d.clamp(product, -800.0, 800.0)
    whole, rest = reduced(d, product)
    found = d.scaled(d.poly(d.add(rest, d.clamp(error, -1.0, 1.0)), EXP), whole)
    infinite, zero = d.is_("oeq", size, math.inf), d.is_("oeq", size, 0.0)
    rises = d.is_("ogt", y, 0.0)
    found = d.pick(infinite, d.pick(rises, math.inf, 0.0), found)
    found = d.pick(zero, d.pick(rises, 0.0, math.inf), found)
    wide = d.is_("oeq", d.abs(y), math.inf)
    grows = m.op("xor", "i1", d.is_("ogt", size, 1.0), m.op("xor", "i1", rises, "true"))
    found = d.pick(wide, d.pick(d.is_("oeq", size, 1.0), 1.0, d.pick(grows, math.inf, 0.0)), found)
    whole_y = d.is_("oeq", y, m.intrinsic("trunc", "double", y))
    half = d.mul(y, d.num(0.5))
    odd = m.op("and", "i1", whole_y, d.is_("one", half, m.intrinsic("trunc", "double", half)))
    found = d.pick(odd, d.sign_of(found, x), found)
    negative = m.op("and", "i1", d.is_("olt", x, 0.0), d.is_("ogt", x, -math.inf))
    wrong = m.op("and", "i1", negative, m.op("xor", "i1", m.op("or", "i1", whole_y, wide), "true"))
    found = d.pick(m.op("or", "i1", wrong, d.is_("uno", x, y)), math.nan, found)
    one = m.op("or", "i1", d.is_("oeq", y, 0.0), d.is_("oeq", x, 1.0))
    return d.pick(one, 1.0, found)


def _log_in_parts(d: Doubles, x: str) -> tuple[str, str]:
    """The logarithm of a positive number, to some 60 bits."""
    f, exponent = mantissa(d, x)
    total = d.add(f, d.num(2.0))
    lost = d.sub(f, d.sub(total, d.num(2.0)))
    s = d.div(f, total)
    error = d.sub(d.fma(d.neg(s), total, f), d.mul(s, lost))
    s_low = d.div(error, total)
    square, square_low = d.dekker(s, s)
    square_low = d.fma(d.add(s, s), s_low, square_low)
    series = d.poly(square, LOG[1:])
    third = d.fma(square, d.num(2 / 3), d.mul(square, d.mul(square, series)))
    third_low = d.fma(square, d.num(2 / 3 - float(2 / 3)), d.mul(square_low, d.num(2 / 3)))
    double = d.add(s, s)
    part, part_low = d.dekker(s, third)
    part_low = d.add(part_low, d.fma(s, third_low, d.mul(s_low, third)))
    base, base_low = d.dekker(exponent, d.num(LN2_HIGH))
    first = d.add(base, double)
    first_low = d.add(d.sub(base, first), double)
    second = d.add(first, part)
    second_low = d.add(d.sub(first, second), part)
    low = d.add(d.add(first_low, second_low), d.add(part_low, d.add(s_low, s_low)))
    low = d.add(low, d.fma(exponent, d.num(LN2_LOW), base_low))
    high = d.add(second, low)
    return high, d.add(d.sub(second, high), low)


def hypot(d: Doubles, *sides: str) -> str:
    """Of up to four sides, scaled by the greatest."""
    m, sizes = d.m, [d.abs(side) for side in sides]
    greatest = sizes[0]
    for size in sizes[1:]:
        greatest = m.intrinsic("maxnum", "double", greatest, size)
    exponent = m.op("and", "i64", m.bits("double", "i64", greatest), str(0x7FF << 52))
    usual = m.op("and", "i1", d.is_("ogt", greatest, 2.0**-1000), d.is_("olt", greatest, 2.0**1000))
    power = m.bits("i64", "double", m.op("sub", "i64", str(2046 << 52), exponent))
    up = d.pick(d.is_("olt", greatest, 1.0), 2.0**600, 2.0**-600)
    factor = d.pick(usual, power, up)
    total = d.num(0.0)
    for size in sizes:
        scaled = d.mul(size, factor)
        total = d.fma(scaled, scaled, total)
    found = d.div(d.sqrt(total), factor)
    return d.pick(d.is_("oeq", greatest, math.inf), math.inf, found)


def fmod(d: Doubles, x: str, y: str) -> str:
    """Of steps in which the quotient has 52 bits at most, each is exact; what is too great for one goes in several."""
    m, code = d.m, d.m.code
    size, by = d.abs(x), d.abs(y)
    usable = m.op("and", "i1", d.is_("olt", size, math.inf), d.is_("ogt", by, 0.0))
    by = d.pick(usable, by, 1.0)
    place = code.memory("double", align=8)
    code.store("double", d.pick(usable, size, 0.0), place)
    head, body, end = (code.fresh(name) for name in ("head", "body", "end"))
    code.jump(head)
    code.block(head)
    rest = code.load("double", place)
    code.branch(d.is_("oge", rest, by), body, end)
    code.block(body)
    code.store("double", _fmod_step(d, rest, by), place)
    code.jump(head)
    code.block(end)
    found = d.sign_of(code.load("double", place), x)
    found = d.pick(usable, found, math.nan)
    finite = m.op("and", "i1", d.is_("olt", size, math.inf), d.is_("oeq", d.abs(y), math.inf))
    return d.pick(finite, x, found)


def _fmod_step(d: Doubles, rest: str, by: str) -> str:
    """Less a multiple of the divisor, times a power of 2 that leaves the quotient below 2 ** 50."""
    m = d.m

    def exponent(value: str) -> str:
        bits = m.op("lshr", "i64", m.bits("double", "i64", value), "52")
        return m.intrinsic("smax", "i64", bits, "1")

    apart = m.op("sub", "i64", exponent(rest), exponent(by))
    shift = m.intrinsic("smax", "i64", m.op("sub", "i64", apart, "48"), "0")
    limit = m.op("sub", "i64", "2045", exponent(by))
    shift = m.intrinsic("smin", "i64", shift, m.intrinsic("smax", "i64", limit, "0"))
    half = m.op("lshr", "i64", shift, "1")
    divisor = d.mul(d.mul(by, d.power(half)), d.power(m.op("sub", "i64", shift, half)))
    quotient = m.intrinsic("trunc", "double", d.div(rest, divisor))
    left = d.fma(d.neg(quotient), divisor, rest)
    return d.pick(d.is_("olt", left, 0.0), d.add(left, divisor), left)


def remainder(d: Doubles, x: str, y: str) -> str:
    """That of the nearest quotient, of two the even one."""
    m, by = d.m, d.abs(y)
    whole = d.is_("olt", by, 2.0**1022)
    rest = d.abs(fmod(d, x, d.pick(whole, d.add(by, by), by)))
    once = d.sub(rest, by)
    small = d.is_("olt", by, 2.0**-1000)
    half = d.mul(by, d.num(0.5))
    plain = d.is_("ogt", rest, half)
    exact = d.is_("ogt", d.add(rest, rest), by)
    above = m.select(small, "i1", exact, plain)
    first = d.pick(above, once, rest)
    twice = d.pick(small, d.add(first, first), first)
    again = m.select(small, "i1", d.is_("oge", twice, by), d.is_("oge", first, half))
    found = d.pick(m.op("and", "i1", above, again), d.sub(first, by), first)
    negative = m.compare("slt", "i64", m.bits("double", "i64", x), "0")
    found = d.pick(negative, d.neg(found), found)
    return d.pick(d.is_("oeq", by, math.inf), d.pick(d.is_("olt", d.abs(x), math.inf), x, math.nan), found)


def fdim(d: Doubles, x: str, y: str) -> str:
    found = d.pick(d.is_("ole", x, y), 0.0, d.sub(x, y))
    return d.pick(d.is_("uno", x, y), math.nan, found)


# ---- of the normal distribution


def _chebyshev(d: Doubles, t: str, coefficients: Sequence[float]) -> str:
    """Clenshaw's recurrence."""
    twice, before, last = d.add(t, t), d.num(0.0), d.num(0.0)
    for coefficient in reversed(coefficients[1:]):
        before, last = last, d.fma(twice, last, d.sub(d.num(coefficient), before))
    return d.fma(t, last, d.sub(d.num(coefficients[0]), before))


def _erfcx(d: Doubles, x: str) -> str:
    """exp(x * x) erfc(x) of what is not negative."""
    t = d.div(d.sub(x, d.num(4.0)), d.add(x, d.num(4.0)))
    return d.div(_chebyshev(d, t, _ERFCX), d.fma(d.num(2.0), x, d.num(1.0)))


def _erfc(d: Doubles, size: str) -> str:
    """Of what is not negative."""
    size = d.clamp(size, 0.0, 30.0)
    square, error = d.dekker(size, size)
    power = exp(d, d.neg(square))
    return d.mul(_erfcx(d, size), d.fma(d.neg(error), power, power))


def erf(d: Doubles, x: str) -> str:
    size = d.abs(x)
    near = d.mul(x, d.poly(d.mul(x, x), _ERF))
    far = d.sign_of(d.sub(d.num(1.0), _erfc(d, size)), x)
    found = d.pick(d.is_("olt", size, 1.0), near, far)
    return d.pick(d.is_("uno", x, x), x, found)


def erfc(d: Doubles, x: str) -> str:
    size = d.abs(x)
    near = d.sub(d.num(1.0), d.mul(x, d.poly(d.mul(x, x), _ERF)))
    far = _erfc(d, size)
    far = d.pick(d.is_("olt", x, 0.0), d.sub(d.num(2.0), far), far)
    found = d.pick(d.is_("olt", size, 0.5), near, far)
    return d.pick(d.is_("uno", x, x), x, found)


def normcdf(d: Doubles, x: str) -> str:
    return d.mul(d.num(0.5), erfc(d, d.mul(x, d.num(-math.sqrt(0.5)))))


def erfcx(d: Doubles, x: str) -> str:
    """Of what is negative 2 exp(x * x) - erfcx(-x)."""
    size = d.abs(x)
    found = _erfcx(d, d.clamp(size, 0.0, 2.0**1000))
    found = d.pick(d.is_("oeq", size, math.inf), 0.0, found)
    square, error = d.dekker(x, x)
    power = exp(d, square)
    power = d.pick(d.is_("olt", power, math.inf), d.fma(error, power, power), power)
    found = d.pick(d.is_("olt", x, 0.0), d.sub(d.add(power, power), found), found)
    return d.pick(d.is_("uno", x, x), x, found)


#: A function of libdevice, or of floats of tile IR → what writes it for f64.
FUNCTIONS: dict[str, Callable[..., str]] = {
    "exp": exp, "log": log, "exp2": doubles.exp2, "exp10": doubles.exp10, "expm1": doubles.expm1,
    "log2": doubles.log2, "log10": doubles.log10, "log1p": doubles.log1p, "sinh": doubles.sinh, "cosh": doubles.cosh,
    "tanh": doubles.tanh, "asinh": doubles.asinh, "acosh": doubles.acosh, "atanh": doubles.atanh, "sin": doubles.sin,
    "cos": doubles.cos, "tan": doubles.tan, "sinpi": doubles.sinpi, "cospi": doubles.cospi, "atan": doubles.atan,
    "atan2": doubles.atan2, "asin": doubles.asin, "acos": doubles.acos, "cbrt": cbrt, "rcbrt": rcbrt, "pow": pow,
    "fmod": fmod, "remainder": remainder, "fdim": fdim, "erf": erf, "erfc": erfc, "normcdf": normcdf, "erfcx": erfcx,
    "hypot": hypot, "norm3d": hypot, "norm4d": hypot,
}  # fmt: skip
