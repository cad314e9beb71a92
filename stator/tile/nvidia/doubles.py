"""Functions of f64 numbers for GPUs, where LLVM has no library: exponentials, logarithms, circular functions and more.

They are right to a few ulps of f64, and so to one of f32, for which they are used too. Polynomials are Taylor series
where these are short enough, or fits at Chebyshev's points made for this file with 60 digits. Arguments of circular
functions beyond 2 ** 28 are reduced by as many bits of 2 / pi as it takes (Payne and Hanek, 1983).
Neighbours: `powers` has the rest and the table; `formulas` what is computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stator.tile.cpu.code import Maker

_ATAN = (1.0, -0.3333333333333312, 0.19999999999940893, -0.14285714279250245, 0.11111110744919658,
         -0.09090896809064027, 0.07692045330902225, -0.06662951813629191, 0.05846878297330872, -0.05035102456601552,
         0.03796525745386593, -0.017805397205419446)  # fmt: skip
#: The bits of 2 / pi behind the point, 64 bits of nothing before them.
_TWO_OVER_PI = (0, 11743562013128004905, 18169587780923219392, 15808362127397457985, 18325537948574664033,
                13196794004601950944, 452944820249399836, 18311050168422213438, 16754012890938950788,
                16833452818741296705, 4148332274289687028, 11278244420634880059, 2303758334597371919,
                17235013589178936607, 7869616827067468215, 5712322887342352941, 8441921394348257659,
                4397547296490951402, 7780917995555872008, 6197850593633725355)  # fmt: skip
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PI2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_LOG2_10_HIGH, _LOG2_10_LOW = 0.30102999566406652, -8.532344317057106e-14  # of 1 / log2(10)
_LARGE = 2.0**28


class Doubles:
    """Writes operations on f64 numbers."""

    def __init__(self, m: Maker) -> None:
        self.m = m

    def num(self, value: float) -> str:
        return self.m.number("double", value)

    def add(self, a: str, b: str) -> str:
        return self.m.op("fadd", "double", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.m.op("fsub", "double", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.m.op("fmul", "double", a, b)

    def div(self, a: str, b: str) -> str:
        return self.m.op("fdiv", "double", a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        return self.m.fma("double", a, b, c)

    def neg(self, a: str) -> str:
        return self.m.op("fneg", "double", a)

    def abs(self, a: str) -> str:
        return self.m.intrinsic("fabs", "double", a)

    def sqrt(self, a: str) -> str:
        return self.m.intrinsic("sqrt", "double", a)

    def rint(self, a: str) -> str:
        return self.m.intrinsic("roundeven", "double", a)

    def sign_of(self, a: str, sign: str) -> str:
        return self.m.intrinsic("copysign", "double", a, sign)

    def is_(self, predicate: str, a: str, b: str | float) -> str:
        return self.m.compare(predicate, "double", a, b if isinstance(b, str) else self.num(b))

    def pick(self, condition: str, a: str | float, b: str | float) -> str:
        first, second = (item if isinstance(item, str) else self.num(item) for item in (a, b))
        return self.m.select(condition, "double", first, second)

    def clamp(self, a: str, low: float, high: float) -> str:
        """Between two numbers; a NaN stays one."""
        a = self.pick(self.is_("ogt", a, high), high, a)
        return self.pick(self.is_("olt", a, low), low, a)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        return self.m.polynomial("double", x, coefficients)

    def power(self, exponent: str) -> str:
        """2 to an integer, as an i64, that a normal number has as its exponent."""
        biased = self.m.op("add", "i64", exponent, "1023")
        return self.m.bits("i64", "double", self.m.op("shl", "i64", biased, "52"))

    def integer(self, whole: str) -> str:
        """An integer as i64; what is no number gives any."""
        return self.m.code.call("i64", "llvm.fptosi.sat.i64.f64", ("double", whole))

    def scaled(self, a: str, whole: str) -> str:
        """Times 2 to an integer between -2200 and 2200, in steps that leave the range no sooner than the result."""
        m, exponent = self.m, self.integer(whole)
        third = m.op("sdiv", "i64", exponent, "3")
        rest = m.op("sub", "i64", exponent, m.op("add", "i64", third, third))
        step = self.power(third)
        return self.mul(self.mul(self.mul(a, step), step), self.power(rest))

    def dekker(self, a: str, b: str) -> tuple[str, str]:
        """A product in two parts, the second what rounding the first has lost."""
        product = self.mul(a, b)
        return product, self.fma(a, b, self.neg(product))


def _factorials(count: int, first: int = 0, step: int = 1, sign: int = 1) -> tuple[float, ...]:
    return tuple([sign**i / math.factorial(first + i * step) for i in range(count)])


EXP = _factorials(14)
_EXPM1 = _factorials(14, first=2)  # (e ** r - 1 - r) / r ** 2
_SIN = _factorials(9, first=1, step=2, sign=-1)
_COS = _factorials(10, step=2, sign=-1)
#: What atanh(s) / s is more than 1, over s * s, twice.
LOG = tuple([2 / (2 * i + 3) for i in range(12)])


def reduced(d: Doubles, x: str) -> tuple[str, str]:
    """How often ln 2 goes into a number, and what is left."""
    whole = d.rint(d.mul(x, d.num(1 / math.log(2))))
    rest = d.fma(whole, d.num(-LN2_HIGH), x)
    return whole, d.fma(whole, d.num(-LN2_LOW), rest)


def exp(d: Doubles, x: str) -> str:
    x = d.clamp(x, -760.0, 720.0)
    whole, rest = reduced(d, x)
    return d.scaled(d.poly(rest, EXP), whole)


def exp2(d: Doubles, x: str) -> str:
    x = d.clamp(x, -1100.0, 1030.0)
    whole = d.rint(x)
    return d.scaled(d.poly(d.mul(d.sub(x, whole), d.num(math.log(2))), EXP), whole)


def exp10(d: Doubles, x: str) -> str:
    x = d.clamp(x, -330.0, 310.0)
    whole = d.rint(d.mul(x, d.num(math.log2(10))))
    rest = d.fma(whole, d.num(-_LOG2_10_HIGH), x)
    rest = d.fma(whole, d.num(-_LOG2_10_LOW), rest)
    return d.scaled(d.poly(d.mul(rest, d.num(math.log(10))), EXP), whole)


def expm1(d: Doubles, x: str) -> str:
    """2 ** n * (e ** r - 1) + (2 ** n - 1), of which neither loses bits."""
    y = d.clamp(x, -50.0, 709.782712893384)
    whole, rest = reduced(d, y)
    near = d.fma(d.mul(rest, rest), d.poly(rest, _EXPM1), rest)
    half = d.scaled(d.num(0.5), whole)
    found = d.fma(half, near, d.sub(half, d.num(0.5)))
    found = d.pick(d.is_("ogt", x, 709.782712893384), math.inf, d.add(found, found))
    return d.pick(d.is_("oeq", x, 0.0), x, found)


def mantissa(d: Doubles, x: str) -> tuple[str, str]:
    """What is between the roots of 1/2 and 2 of a positive number, less 1, and the exponent of the rest."""
    m = d.m
    small = d.is_("olt", x, 2.0**-1022)
    bits = m.bits("double", "i64", d.pick(small, d.mul(x, d.num(2.0**54)), x))
    exponent = m.op("ashr", "i64", m.op("sub", "i64", bits, str(0x3FE6A09E667F3BCD)), "52")
    reduced = m.op("sub", "i64", bits, m.op("shl", "i64", exponent, "52"))
    exponent = m.op("sub", "i64", exponent, m.select(small, "i64", "54", "0"))
    return d.sub(m.bits("i64", "double", reduced), d.num(1.0)), m.convert("sitofp", "i64", "double", exponent)


def _near_one(d: Doubles, f: str) -> tuple[str, str]:
    """log(1 + f) as f and what is to be taken from it."""
    s = d.div(f, d.add(f, d.num(2.0)))
    square = d.mul(s, s)
    return f, d.mul(s, d.sub(f, d.mul(square, d.poly(square, LOG))))


def _edges(d: Doubles, x: str, found: str) -> str:
    """A logarithm with what is no positive number in its place."""
    found = d.pick(d.is_("oeq", x, math.inf), x, found)
    found = d.pick(d.is_("oeq", x, 0.0), -math.inf, found)
    return d.pick(d.is_("ult", x, 0.0), math.nan, found)


def log(d: Doubles, x: str) -> str:
    f, exponent = mantissa(d, x)
    f, less = _near_one(d, f)
    low = d.fma(exponent, d.num(LN2_LOW), d.neg(less))
    return _edges(d, x, d.fma(exponent, d.num(LN2_HIGH), d.add(f, low)))


def _log_by(base: float) -> Callable[[Doubles, str], str]:
    """The logarithm to another base: the product with the factor in two parts."""
    factor = 1 / math.log(base)

    def function(d: Doubles, x: str) -> str:
        f, exponent = mantissa(d, x)
        f, less = _near_one(d, f)
        natural = d.sub(f, less)
        rest = d.sub(d.sub(f, natural), less)
        found = d.mul(natural, d.num(factor))
        error = d.fma(natural, d.num(factor), d.neg(found))
        small = d.fma(rest, d.num(factor), error)
        if base == 2:
            return _edges(d, x, d.add(d.add(exponent, found), small))
        scale = 1 / math.log2(base)
        whole = d.mul(exponent, d.num(scale))
        small = d.add(small, d.fma(exponent, d.num(scale), d.neg(whole)))
        return _edges(d, x, d.add(d.add(whole, found), small))

    return function


log2, log10 = _log_by(2.0), _log_by(10.0)


def log1p(d: Doubles, x: str) -> str:
    total = d.add(x, d.num(1.0))
    lost = d.sub(x, d.sub(total, d.num(1.0)))
    found = d.add(log(d, total), d.div(lost, total))
    plain = d.m.op("or", "i1", d.is_("oeq", x, math.inf), d.is_("ole", x, -1.0))
    found = d.pick(plain, log(d, total), found)
    return d.pick(d.is_("oeq", x, 0.0), x, found)


# ---- hyperbolic


def sinh(d: Doubles, x: str) -> str:
    size = d.abs(x)
    power = expm1(d, d.clamp(size, 0.0, 700.0))
    near = d.mul(d.num(0.5), d.add(power, d.div(power, d.add(power, d.num(1.0)))))
    half = exp(d, d.mul(size, d.num(0.5)))
    far = d.mul(d.mul(half, d.num(0.5)), half)
    return d.sign_of(d.pick(d.is_("ogt", size, 40.0), far, near), x)


def cosh(d: Doubles, x: str) -> str:
    size = d.abs(x)
    half = exp(d, d.mul(size, d.num(0.5)))
    power = d.mul(half, d.mul(half, d.num(0.5)))
    near = exp(d, size)
    found = d.fma(d.num(0.5), near, d.div(d.num(0.5), near))
    return d.pick(d.is_("ogt", size, 40.0), power, found)


def tanh(d: Doubles, x: str) -> str:
    size = d.clamp(d.abs(x), 0.0, 25.0)
    power = expm1(d, d.add(size, size))
    return d.sign_of(d.div(power, d.add(power, d.num(2.0))), x)


def asinh(d: Doubles, x: str) -> str:
    size = d.abs(x)
    square = d.mul(size, size)
    near = log1p(d, d.add(size, d.div(square, d.add(d.num(1.0), d.sqrt(d.add(square, d.num(1.0)))))))
    far = d.add(log(d, size), d.num(math.log(2)))
    return d.sign_of(d.pick(d.is_("ogt", size, 2.0**28), far, near), x)


def acosh(d: Doubles, x: str) -> str:
    more = d.sub(x, d.num(1.0))
    near = log1p(d, d.add(more, d.sqrt(d.fma(more, more, d.add(more, more)))))
    far = d.add(log(d, x), d.num(math.log(2)))
    found = d.pick(d.is_("ogt", x, 2.0**28), far, near)
    return d.pick(d.is_("ult", x, 1.0), math.nan, found)


def atanh(d: Doubles, x: str) -> str:
    size = d.abs(x)
    found = log1p(d, d.div(d.add(size, size), d.sub(d.num(1.0), size)))
    found = d.sign_of(d.mul(d.num(0.5), found), x)
    return d.pick(d.is_("ugt", size, 1.0), math.nan, found)


# ---- circular


def _quarters(d: Doubles, x: str) -> tuple[str, str, str]:
    """What is left of a number behind quarters of a turn, in two parts, and how many there are, modulo 4."""
    m, code = d.m, d.m.code
    places = [code.memory("double", align=8), code.memory("double", align=8), code.memory("i64", align=8)]
    whole = d.rint(d.mul(x, d.num(1 / _PI2[0])))
    first = d.fma(whole, d.num(-_PI2[0]), x)
    product, error = d.dekker(whole, d.num(_PI2[1]))
    rest = d.sub(first, product)
    low = d.sub(d.sub(d.sub(first, rest), product), d.fma(whole, d.num(_PI2[2]), error))
    for type_, value, place in zip(("double", "double", "i64"), (rest, low, d.integer(whole)), places, strict=True):
        code.store(type_, value, place)
    with code.when(d.is_("ogt", d.abs(x), _LARGE)):
        for type_, value, place in zip(("double", "double", "i64"), _large_quarters(d, x), places, strict=True):
            code.store(type_, value, place)
    rest, low = (code.load("double", place) for place in places[:2])
    return rest, low, m.op("and", "i64", code.load("i64", places[2]), "3")


def _large_quarters(d: Doubles, x: str) -> tuple[str, str, str]:
    """The product of the 53 bits of a number with 192 bits of 2 / pi, those that decide."""
    m, code = d.m, d.m.code
    bits = m.bits("double", "i64", d.abs(x))
    exponent = m.op("sub", "i64", m.op("lshr", "i64", bits, "52"), "1075")
    fraction = m.op("or", "i64", m.op("and", "i64", bits, str((1 << 52) - 1)), str(1 << 52))
    start = m.op("add", "i64", exponent, "62")
    start = m.select(m.compare("ult", "i64", start, "1040"), "i64", start, "0")  # neither infinities nor NaNs
    word, shift = m.op("lshr", "i64", start, "6"), m.op("and", "i64", start, "63")
    table = code.table("two_over_pi", "i64", list(_TWO_OVER_PI))
    found = [code.load("i64", code.at(table, m.op("add", "i64", word, str(i)), "i64")) for i in range(4)]
    high, middle, low = (m.intrinsic("fshl", "i64", found[i], found[i + 1], shift) for i in range(3))

    def wide(value: str) -> str:
        return m.convert("zext", "i64", "i128", value)

    last = m.op("mul", "i128", wide(low), wide(fraction))
    carried = m.op("lshr", "i128", last, "64")
    second = m.op("add", "i128", m.op("mul", "i128", wide(middle), wide(fraction)), carried)
    lower = m.convert("trunc", "i128", "i64", second)
    carried = m.convert("trunc", "i128", "i64", m.op("lshr", "i128", second, "64"))
    upper = m.op("add", "i64", m.op("mul", "i64", high, fraction), carried)
    rounded = m.op("add", "i64", upper, str(1 << 61))
    count = m.op("lshr", "i64", rounded, "62")
    signed = m.op("sub", "i64", m.op("and", "i64", rounded, str((1 << 62) - 1)), str(1 << 61))
    first = d.mul(m.convert("sitofp", "i64", "double", signed), d.num(2.0**-62))
    exact = d.m.convert("sitofp", "i64", "double", m.op("sub", "i64", signed, d.integer(d.mul(first, d.num(2.0**62)))))
    small = d.fma(exact, d.num(2.0**-62), d.mul(m.convert("uitofp", "i64", "double", lower), d.num(2.0**-126)))
    rest, error = d.dekker(first, d.num(_PI2[0]))
    less = d.fma(first, d.num(_PI2[1]), d.fma(small, d.num(_PI2[0]), error))
    total = d.add(rest, less)
    less = d.add(d.sub(rest, total), less)
    negative = d.is_("olt", x, 0.0)
    invalid = d.sub(x, x)  # NaN of what is no number
    total = d.add(d.pick(negative, d.neg(total), total), invalid)
    count = m.select(negative, "i64", m.op("sub", "i64", "0", count), count)
    return total, d.pick(negative, d.neg(less), less), count


def _sine(d: Doubles, rest: str, low: str) -> str:
    square = d.mul(rest, rest)
    cubed = d.mul(d.mul(rest, square), d.poly(square, _SIN[1:]))
    return d.add(rest, d.add(cubed, d.mul(low, d.fma(square, d.num(-0.5), d.num(1.0)))))


def _cosine(d: Doubles, rest: str, low: str) -> str:
    square = d.mul(rest, rest)
    half = d.mul(square, d.num(0.5))
    near = d.sub(d.num(1.0), half)
    lost = d.sub(d.sub(d.num(1.0), near), half)
    more = d.mul(d.mul(square, square), d.poly(square, _COS[2:]))
    return d.add(near, d.add(lost, d.sub(more, d.mul(rest, low))))


def _circular(quarter: int) -> Callable[[Doubles, str], str]:
    def function(d: Doubles, x: str) -> str:
        m = d.m
        rest, low, count = _quarters(d, x)
        place = m.op("add", "i64", count, str(quarter))
        odd = m.compare("ne", "i64", m.op("and", "i64", place, "1"), "0")
        found = d.pick(odd, _cosine(d, rest, low), _sine(d, rest, low))
        negative = m.compare("ne", "i64", m.op("and", "i64", place, "2"), "0")
        found = d.pick(negative, d.neg(found), found)
        return found if quarter else d.pick(d.is_("oeq", x, 0.0), x, found)

    return function


sin, cos = _circular(0), _circular(1)


def tan(d: Doubles, x: str) -> str:
    m = d.m
    rest, low, count = _quarters(d, x)
    sine, cosine = _sine(d, rest, low), _cosine(d, rest, low)
    odd = m.compare("ne", "i64", m.op("and", "i64", count, "1"), "0")
    found = d.div(d.pick(odd, d.neg(cosine), sine), d.pick(odd, sine, cosine))
    return d.pick(d.is_("oeq", x, 0.0), x, found)


def _halves(d: Doubles, x: str) -> tuple[str, str]:
    """What is left of a number of half turns behind quarters, and how many of these, modulo 4."""
    m = d.m
    turns = d.sub(x, d.mul(d.num(2.0), m.intrinsic("trunc", "double", d.mul(x, d.num(0.5)))))
    whole = d.rint(d.add(turns, turns))
    rest = d.fma(whole, d.num(-0.5), turns)
    return rest, m.op("and", "i64", d.integer(whole), "3")


def _of_half_turns(quarter: int) -> Callable[[Doubles, str], str]:
    def function(d: Doubles, x: str) -> str:
        m = d.m
        turns, count = _halves(d, x)
        rest, low = d.dekker(turns, d.num(math.pi))
        low = d.fma(turns, d.num(1.2246467991473532e-16), low)
        place = m.op("add", "i64", count, str(quarter))
        odd = m.compare("ne", "i64", m.op("and", "i64", place, "1"), "0")
        found = d.pick(odd, _cosine(d, rest, low), _sine(d, rest, low))
        negative = m.compare("ne", "i64", m.op("and", "i64", place, "2"), "0")
        found = d.pick(negative, d.neg(found), found)
        if quarter:
            return d.pick(d.is_("oeq", found, 0.0), 0.0, found)
        whole = d.is_("oeq", x, m.intrinsic("trunc", "double", x))
        finite = d.is_("olt", d.abs(x), math.inf)
        return d.pick(m.op("and", "i1", whole, finite), d.sign_of(d.num(0.0), x), found)

    return function


sinpi, cospi = _of_half_turns(0), _of_half_turns(1)


def _arc(d: Doubles, y: str, x: str) -> str:
    """The angle of a point whose coordinates are not negative, by quotients up to tan(pi / 8)."""
    steep = d.is_("ogt", y, x)
    low, high = d.pick(steep, x, y), d.pick(steep, y, x)
    middle = d.is_("ogt", low, d.mul(high, d.num(math.sqrt(2) - 1)))
    above = d.pick(middle, d.sub(low, high), low)
    below = d.pick(middle, d.add(low, high), high)
    zero = d.is_("oeq", below, 0.0)
    quotient = d.div(above, d.pick(zero, 1.0, below))
    square = d.mul(quotient, quotient)
    angle = d.fma(d.mul(quotient, square), d.poly(square, _ATAN[1:]), quotient)
    quarter = d.add(d.num(math.pi / 4), d.add(angle, d.num(_PI2[1] / 2)))
    angle = d.pick(middle, quarter, angle)
    turned = d.add(d.sub(d.num(_PI2[0]), angle), d.num(_PI2[1]))
    return d.pick(steep, turned, angle)


def atan2(d: Doubles, y: str, x: str) -> str:
    m = d.m
    a, b = d.abs(y), d.abs(x)
    both = m.op("and", "i1", d.is_("oeq", a, math.inf), d.is_("oeq", b, math.inf))
    a, b = d.pick(both, 1.0, a), d.pick(both, 1.0, b)
    great = m.op("or", "i1", d.is_("ogt", a, 2.0**1000), d.is_("ogt", b, 2.0**1000))
    a, b = (d.pick(great, d.mul(item, d.num(2.0**-60)), item) for item in (a, b))
    angle = _arc(d, a, b)
    finite = m.op("and", "i1", d.is_("olt", b, math.inf), d.is_("olt", a, math.inf))
    beyond = d.pick(d.is_("oeq", b, math.inf), 0.0, d.num(_PI2[0]))
    angle = d.pick(finite, angle, beyond)
    left = m.compare("slt", "i64", m.bits("double", "i64", x), "0")
    angle = d.pick(left, d.add(d.sub(d.num(math.pi), angle), d.num(2 * _PI2[1])), angle)
    found = d.sign_of(angle, y)
    return d.pick(d.is_("uno", x, y), math.nan, found)


def atan(d: Doubles, x: str) -> str:
    size = d.abs(x)
    found = _arc(d, d.pick(d.is_("ogt", size, 2.0**100), 2.0**100, size), d.num(1.0))
    return d.pick(d.is_("uno", x, x), x, d.sign_of(found, x))


def asin(d: Doubles, x: str) -> str:
    size = d.abs(x)
    other = d.sqrt(d.mul(d.sub(d.num(1.0), size), d.add(d.num(1.0), size)))
    return d.pick(d.is_("ugt", size, 1.0), math.nan, d.sign_of(_arc(d, size, other), x))


def acos(d: Doubles, x: str) -> str:
    one = d.num(1.0)
    half = _arc(d, d.sqrt(d.sub(one, x)), d.sqrt(d.add(one, x)))
    return d.pick(d.is_("ugt", d.abs(x), 1.0), math.nan, d.add(half, half))
