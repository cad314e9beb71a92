"""Bessel functions of integer order, to nearly the precision of f64, number by number.

J is found by going down from a high order (Miller's algorithm), Y0 and Y1 from series of all J, and both for great
arguments from Hankel's asymptotic expansion; Y of higher orders, and J of those below the argument, by going up. I0 and
I1 are their power series, and the asymptotic one beyond. See NIST's Digital Library of Mathematical Functions, 10.12,
10.17, 10.23, 10.25 and 10.40.
"""

from __future__ import annotations

import math

#: From here on the asymptotic expansions are exact to all bits.
_FAR = 45.0
#: Up to here the first terms of the power series are.
_NEAR = 1e-8
_EULER = 0.57721566490153286060651209


def bessel_j(order: int, x: float) -> float:
    """J of an order, which may be negative."""
    if math.isnan(x):
        return x
    if math.isinf(x):
        return 0.0
    sign = 1.0
    if order < 0:
        order, sign = -order, sign * (-1) ** (order % 2)
    if x < 0:
        x, sign = -x, sign * (-1) ** (order % 2)
    if x == 0:
        return sign if order == 0 else 0.0
    if x < _NEAR:
        return sign * _first_term(order, x)
    if x > _FAR and x >= order:
        return sign * _upward(order, x, _hankel(0, x)[0], _hankel(1, x)[0])
    return sign * _all_j(x, order)[order]


def _first_term(order: int, x: float) -> float:
    """(x/2)**order / order!, for a small x."""
    term = 1.0
    for n in range(1, order + 1):
        term *= x / 2 / n
        if term == 0:
            break
    return term


def _upward(order: int, x: float, first: float, second: float) -> float:
    """J or Y of an order from those of orders 0 and 1, which is exact for J while the order is below x."""
    for n in range(1, order):
        first, second = second, 2 * n / x * second - first
        if math.isinf(second):
            return second
    return first if order == 0 else second


def _all_j(x: float, least: int) -> list[float]:
    """J of the orders 0, 1, … at x, at least so many of them as matter, made to fulfil J0 + 2 (J2 + J4 + …) = 1."""
    start = 2 * ((max(least, int(x)) + 30 + int(10 * max(least, x) ** 0.5)) // 2)
    found = [0.0] * (start + 2)
    found[start] = 1e-300
    for order in range(start, 0, -1):
        found[order - 1] = 2 * order / x * found[order] - found[order + 1]
        if abs(found[order - 1]) > 1e200:
            found = [value * 1e-200 for value in found]
    total = found[0] + 2 * math.fsum(found[2::2])
    return [value / total for value in found]


def bessel_y(order: int, x: float) -> float:
    """Y of an order, which may be negative; it is real for positive x only."""
    if math.isnan(x) or x < 0:
        return math.nan
    if order < 0:
        return (-1) ** (order % 2) * bessel_y(-order, x)
    if x == 0:
        return -math.inf
    if math.isinf(x):
        return 0.0
    first, second = (_hankel(0, x)[1], _hankel(1, x)[1]) if x > _FAR else _first_y(x)
    return _upward(order, x, first, second)


def _first_y(x: float) -> tuple[float, float]:
    """Y0 and Y1, from J of all orders."""
    logarithm = math.log(x) - math.log(2) + _EULER
    if x < _NEAR:
        return 2 / math.pi * logarithm, -2 / math.pi / x
    j = _all_j(x, 2)
    even = math.fsum([(-1) ** k * j[2 * k] / k for k in range(1, len(j) // 2)])
    odd = math.fsum([(-1) ** k * (j[2 * k - 1] - j[2 * k + 1]) / k for k in range(1, len(j) // 2 - 1)])
    zero = 2 / math.pi * (logarithm * j[0] - 2 * even)
    one = 2 / math.pi * (logarithm * j[1] - j[0] / x + odd)  # the derivative of the other, with its sign changed
    return zero, one


def _hankel(order: int, x: float) -> tuple[float, float]:
    """J and Y for a great x."""
    squared, term, cosines, sines = 4.0 * order * order, 1.0, 1.0, 0.0
    for k in range(1, 200):
        following = term * (squared - (2 * k - 1) ** 2) / (k * 8 * x)
        if abs(following) > abs(term) and k > order:
            break
        term = following
        signed = -term if k % 4 in (2, 3) else term
        if k % 2:
            sines += signed
        else:
            cosines += signed
        if abs(term) < 1e-18:
            break
    c, s = _shifted(order, x)
    scale = math.sqrt(2 / (math.pi * x))
    return scale * (cosines * c - sines * s), scale * (cosines * s + sines * c)


def _shifted(order: int, x: float) -> tuple[float, float]:
    """The cosine and sine of x - order*pi/2 - pi/4, without losing bits of x."""
    c, s, half = math.cos(x), math.sin(x), math.sqrt(0.5)
    c, s = half * (c + s), half * (s - c)
    for _ in range(order % 4):
        c, s = s, -c
    return c, s


def bessel_i(order: int, x: float) -> float:
    """I of order 0 or 1."""
    sign = -1.0 if order == 1 and x < 0 else 1.0
    x = abs(x)
    if math.isnan(x) or math.isinf(x):
        return sign * x
    if x < 30:
        term = total = (x / 2) ** order
        for k in range(1, 200):
            term *= x * x / 4 / (k * (k + order))
            total += term
            if term < 1e-18 * total:
                break
        return sign * total
    term = total = 1.0
    for k in range(1, 40):
        term *= -(4 * order * order - (2 * k - 1) ** 2) / (k * 8 * x)
        total += term
    try:
        half = math.exp(x / 2)
    except OverflowError:
        return sign * math.inf
    return sign * half * (half * (total / math.sqrt(2 * math.pi * x)))
