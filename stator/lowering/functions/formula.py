"""Formulas: expressions written with Python's operators, for functions that consist of many operations.

A `Formula` is a float or bool `Expr` under construction; numbers among operands become constants of its dtype. What is
written is computed: nothing is simplified that rounds, but series end where the digits of the result do. Neighbours:
`gamma.py`, `error.py`, `bessel.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.lowering.functions.coefficients import Ratio, Series


class Formula:
    """A number (or truth value) that is computed where it is read.

    `spare` is what a series may be off by, as a part of its largest coefficient; 0 where all digits count.
    """

    __slots__ = ("expr", "spare")

    def __init__(self, expr: Expr, spare: float = 0.0) -> None:
        self.expr = expr
        self.spare = spare

    def __add__(self, other: Formula | float) -> Formula:
        return _op("add", self, other)

    def __radd__(self, other: float) -> Formula:
        return _op("add", other, self)

    def __sub__(self, other: Formula | float) -> Formula:
        return _op("sub", self, other)

    def __rsub__(self, other: float) -> Formula:
        return _op("sub", other, self)

    def __mul__(self, other: Formula | float) -> Formula:
        return _op("mul", self, other)

    def __rmul__(self, other: float) -> Formula:
        return _op("mul", other, self)

    def __truediv__(self, other: Formula | float) -> Formula:
        return _op("div", self, other)

    def __rtruediv__(self, other: float) -> Formula:
        return _op("div", other, self)

    def __neg__(self) -> Formula:
        return _op("neg", self)

    def __lt__(self, other: Formula | float) -> Formula:
        return _op("lt", self, other)

    def __le__(self, other: Formula | float) -> Formula:
        return _op("le", self, other)

    def __gt__(self, other: Formula | float) -> Formula:
        return _op("gt", self, other)

    def __ge__(self, other: Formula | float) -> Formula:
        return _op("ge", self, other)

    def __and__(self, other: Formula) -> Formula:
        return _op("and", self, other)

    def __or__(self, other: Formula) -> Formula:
        return _op("or", self, other)

    def equals(self, other: Formula | float) -> Formula:
        return _op("eq", self, other)


def _op(name: str, *operands: Formula | float) -> Formula:
    return Formula(e.op(name, *_alike(*operands)), max([o.spare for o in operands if isinstance(o, Formula)]))


def _alike(*operands: Formula | float) -> list[Expr]:
    """The operands, where numbers have the dtype of the formulas."""
    dtype = next((o.expr.dtype for o in operands if isinstance(o, Formula)), "f64")
    return [o.expr if isinstance(o, Formula) else e.const(o, dtype) for o in operands]


def _function(name: str) -> Callable[[Formula], Formula]:
    return lambda x: _op(name, x)


absolute, exp, log, log1p = _function("abs"), _function("exp"), _function("log"), _function("log1p")
sqrt, sin, cos = _function("sqrt"), _function("sin"), _function("cos")
floor, trunc = _function("floor"), _function("trunc")


def rough_log(x: Formula) -> Formula:
    """The logarithm, computed as a float where the result is one, or shorter."""
    if not x.spare:
        return log(x)
    return Formula(e.cast(e.op("log", e.cast(x.expr, "f32")), x.expr.dtype), x.spare)


def where(condition: Formula, a: Formula | float, b: Formula | float) -> Formula:
    """`a` where the condition holds, else `b`."""
    spare = max([o.spare for o in (condition, a, b) if isinstance(o, Formula)])
    return Formula(e.op("where", condition.expr, *_alike(a, b)), spare)


def chebyshev(series: Series, x: Formula) -> Formula:
    """A Chebyshev series at x: by Clenshaw's recurrence, or, where not all digits count, as a short polynomial."""
    low, high, coefficients = series
    t = (x - (low + high) / 2) * (2 / (high - low))
    if x.spare:
        return polynomial(t, *_powers(coefficients, x.spare))
    twice = t + t
    last: Formula | float = 0.0
    value: Formula | float = coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        value, last = twice * value - last + c, value
    return t * value - last + coefficients[0]


@cache
def _powers(series: tuple[float, ...], spare: float) -> tuple[float, ...]:
    """A Chebyshev series as coefficients of powers, without the terms at its end that `spare` covers."""
    length, rest = len(series), 0.0
    while length > 2 and rest + abs(series[length - 1]) <= spare * max(map(abs, series)):
        length -= 1
        rest += abs(series[length])
    found = [0.0] * length
    before, current = [1.0], [0.0, 1.0]  # the polynomials of degrees 0 and 1
    for c in series[:length]:
        for k, power in enumerate(before):
            found[k] += c * power
        doubled = [0.0, *[2.0 * power for power in current]]
        before, current = current, [a - b for a, b in zip(doubled, [*before, 0.0, 0.0], strict=False)]
    return tuple(found)


def ratio(parts: Ratio, x: Formula) -> Formula:
    """A quotient of polynomials of x."""
    above, below = parts
    return polynomial(x, *above) / polynomial(x, *below)


def polynomial(x: Formula, *coefficients: float) -> Formula:
    """The sum of coefficients[k] * x**k; where not all digits count, products and sums are rounded together."""
    value: Formula | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = _op("fma", x, value, c) if x.spare else x * value + c
    assert isinstance(value, Formula)
    return value
