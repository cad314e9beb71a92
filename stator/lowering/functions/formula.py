"""Formulas: expressions written with Python's operators, for functions that consist of many operations.

A `Formula` is a float or bool `Expr` under construction; numbers among operands become constants of its dtype. What is
written is computed: nothing is simplified that rounds. Neighbours: `gamma.py`, `error.py`, `bessel.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.lowering.functions.coefficients import Ratio, Series


class Formula:
    """A number (or truth value) that is computed where it is read."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

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
    return Formula(e.op(name, *_alike(*operands)))


def _alike(*operands: Formula | float) -> list[Expr]:
    """The operands, where numbers have the dtype of the formulas."""
    dtype = next((o.expr.dtype for o in operands if isinstance(o, Formula)), "f64")
    return [o.expr if isinstance(o, Formula) else e.const(o, dtype) for o in operands]


def _function(name: str) -> Callable[[Formula], Formula]:
    return lambda x: _op(name, x)


absolute, exp, log, log1p = _function("abs"), _function("exp"), _function("log"), _function("log1p")
sqrt, sin, cos = _function("sqrt"), _function("sin"), _function("cos")
floor, trunc = _function("floor"), _function("trunc")


def where(condition: Formula, a: Formula | float, b: Formula | float) -> Formula:
    """`a` where the condition holds, else `b`."""
    return Formula(e.op("where", condition.expr, *_alike(a, b)))


def chebyshev(series: Series, x: Formula) -> Formula:
    """A Chebyshev series at x (Clenshaw's recurrence)."""
    low, high, coefficients = series
    t = (x - (low + high) / 2) * (2 / (high - low))
    twice = t + t
    last: Formula | float = 0.0
    value: Formula | float = coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        value, last = twice * value - last + c, value
    return t * value - last + coefficients[0]


def ratio(parts: Ratio, x: Formula) -> Formula:
    """A quotient of polynomials of x."""
    above, below = parts
    return polynomial(x, *above) / polynomial(x, *below)


def polynomial(x: Formula, *coefficients: float) -> Formula:
    """The sum of coefficients[k] * x**k."""
    value: Formula | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = x * value + c
    assert isinstance(value, Formula)
    return value
