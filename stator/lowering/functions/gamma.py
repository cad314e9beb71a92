"""Derivatives of the logarithm of the gamma function, as formulas.

Small arguments are moved up by the recurrence, negative ones mirrored; then comes the expansion for large ones. The
function itself is an operator of the scalar table, since every mathematical library has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stator.lowering.functions.formula import Formula, cos, floor, log, polynomial, sin, trunc, where

#: Arguments below this are moved up by it, with the recurrence, before the expansion for large ones.
SHIFT = 10
#: B(2k) / (2k), and B(2k), from k = 1 on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def digamma(x: Formula) -> Formula:
    """The derivative of log gamma; NaN at negative whole numbers, and at 0 the infinity of the other sign."""
    at = where(x < 0.0, 1.0 - x, x)
    small = at < SHIFT
    down = _summed(at, SHIFT, lambda y: 1.0 / y)
    at = where(small, at + SHIFT, at)
    z = 1.0 / (at * at)
    tail = z * polynomial(z, *[b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])
    value = log(at) - 0.5 / at - tail - where(small, down, 0.0)
    value = where(at > 1e17, log(at), value)
    turn = x - trunc(x)
    value = where(x < 0.0, value - math.pi * cos(math.pi * turn) / sin(math.pi * turn), value)
    value = where((x < 0.0) & x.equals(floor(x)), math.nan, value)
    return where(x.equals(0.0), -1.0 / x, value)


def trigamma(x: Formula) -> Formula:
    """The second derivative of log gamma, to as many terms as eager takes: it is right to nine digits.

    In the result's type, as in eager: beside a pole and far below zero the sine is that of a rounded number, and shows
    how it was rounded.
    """
    mirrored = x < 0.5
    at = where(mirrored, 1.0 - x, x)
    total = _summed(at, 6, lambda y: 1.0 / (y * y))
    at = at + 6.0
    z = 1.0 / (at * at)
    total = total + (1.0 + 0.5 / at + z * polynomial(z, *_BERNOULLI[:3])) / at
    turn = sin(math.pi * x)
    return where(mirrored, math.pi * math.pi / (turn * turn) - total, total)


def _summed(x: Formula, count: int, term: Callable[[Formula], Formula]) -> Formula:
    """The terms at x, x + 1, …, the smallest first."""
    total = term(x + (count - 1.0))
    for k in range(count - 2, 0, -1):
        total = total + term(x + float(k))
    return total + term(x)
