"""Interval analysis of scalar expressions: proved bounds of their values.

`Ranges()(expr)` gives the lowest and the highest value, both included; None where no bound is known. An integer may
have a bound on one side, and a symbolic one. A float has both or none: with bounds it is finite, and no NaN. What is
loaded is known by its dtype alone, so a fact here holds wherever the expression stands. The condition of a choice
narrows the range of its branches: `i < 0 ? i + n : i` for i in -n … n-1 lies in 0 … n-1.
Neighbours: lowering leaves out the wrapping of positions that cannot be negative; code generation leaves out checks of
positions that are in range, and computes in int32 where that suffices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from stator.loop.expr import Expr, postorder
from stator.loop.extent import Bound, less
from stator.loop.magnitude import holds
from stator.loop.scalar import FLOATS, round_to
from stator.sizes import Extent, Size

#: Two bounds (`extent.Bound`), or two floats.
Range: TypeAlias = tuple[Any, Any]
UNKNOWN: Range = (None, None)

_LIMITS = {
    "bool": (0, 1), "u8": (0, 255), "i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1),
    "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1),
}  # fmt: skip
#: How much an operator may round, relative to the values; a compiler may also join two of them and round once.
_ROUNDING = {"f64": 2.0**-50, "f32": 2.0**-21, "bf16": 2.0**-5, "f16": 2.0**-8}
#: What underflows: below this a value may come out as any of its size, 0 too.
_TINY = {"f64": 2.0**-1022, "f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}
#: A greater value may come out as an infinity.
_GREATEST = {"f64": 2.0**1023, "f32": 2.0**127, "bf16": 2.0**127, "f16": 2.0**15}


class Ranges:
    """Intervals of expressions, each computed once. `positions`: how many points the reduce axes of the nest have."""

    __slots__ = ("memo", "positions")

    def __init__(self, positions: Extent | None = None) -> None:
        self.memo: dict[Expr, Range] = {}
        self.positions = positions

    def __call__(self, root: Expr) -> Range:
        if root not in self.memo:
            for node in postorder([root]):
                if node not in self.memo:
                    self.memo[node] = self._within_dtype(node, self._of(node))
        return self.memo[root]

    def numbers(self, root: Expr) -> tuple[int, int] | None:
        """The range of an integer as numbers, whatever its symbols are."""
        low, high = _numbers(self(root))
        return (low, high) if type(low) is int and type(high) is int else None

    def within(self, root: Expr, extent: Extent) -> bool:
        """Whether an integer is known to lie in 0 … extent-1."""
        low, high = self(root)
        return less(-1, low) and less(high, extent)

    def _of(self, node: Expr) -> Range:
        match node.op:
            case "const":
                value = node.attr if node.dtype in FLOATS else int(node.attr)
                return (value, value) if math.isfinite(value) else UNKNOWN
            case "index":
                return node.attr.bounds() if holds(node.attr) else UNKNOWN
            case "reduce" if node.attr.startswith("arg") and self.positions is not None:
                return 0, _greatest(self.positions - 1, 0)
            case "scan" if node.attr in ("max", "min"):
                return self.memo[node.args[0]]
            case "scan" if node.attr == "sum" and node.dtype == "i64" and type(self.positions) is int:
                return _hull(self.memo[node.args[0]], _mul(self.memo[node.args[0]], (self.positions, self.positions)))
            case "cast":
                return _converted(node.args[0].dtype, node.dtype, self.memo[node.args[0]])
            case "known":
                return _meet(node.attr, self.memo[node.args[0]])
            case "masked":
                return _hull(self.memo[node.args[1]], self.memo[node.args[2]])
            case "where":
                condition, value, other = node.args
                return _hull(self._chosen(condition, value, True), self._chosen(condition, other, False))
        rule = _RULES.get(node.op)
        if rule is None:
            return UNKNOWN
        found = rule(*[self.memo[arg] for arg in node.args])
        if node.dtype not in FLOATS or node.op in _EXACT or found[0] is None:
            return found
        return _widened(node.dtype, found)

    def _chosen(self, condition: Expr, value: Expr, holds: bool) -> Range:
        """The range of a value where a condition holds, or does not."""
        known = self.memo[value]
        if condition.op not in _OPPOSITE or condition.args[0].dtype in FLOATS:
            return known
        number, limit = condition.args[0], self.memo[condition.args[1]]
        part = _meet(self.memo[number], _allowed(condition.op if holds else _OPPOSITE[condition.op], limit))
        if value is number:
            return part
        if value.op == "add" and number in value.args:
            other = value.args[1] if value.args[0] is number else value.args[0]
            return _meet(known, self._within_dtype(value, _add(part, self.memo[other])))
        return known

    @staticmethod
    def _within_dtype(node: Expr, found: Range) -> Range:
        """The range, or only that of the dtype where a value may overflow (wrap around, or be infinite)."""
        low, high = found
        if node.dtype in FLOATS:
            whole = type(low) is not Size and type(high) is not Size and low is not None and high is not None
            return found if whole and max(abs(low), abs(high)) <= _GREATEST[node.dtype] else UNKNOWN
        if node.dtype != "i64":
            low, high = _numbers(found)
        least, most = _LIMITS[node.dtype]
        if (type(low) is int and low < least) or (type(high) is int and high > most):
            return (None, None) if node.dtype == "i64" else (least, most)
        if node.dtype == "i64":
            return found
        return least if low is None else low, most if high is None else high


def _numbers(found: Range) -> Range:
    """Bounds as numbers, whatever their symbols are."""
    low, high = found
    return (
        low.bounds()[0] if type(low) is Size else low,
        high.bounds()[1] if type(high) is Size else high,
    )


# -- parts of ranges -------------------------------------------------------------------------------


def _least(a: Bound, b: Bound) -> Bound:
    """The lower of two bounds that both hold from above: a symbolic one where the order is open."""
    if a is None or b is None:
        return b if a is None else a
    if less(a, b):
        return a
    return b if less(b, a) or type(b) is Size else a


def _greatest(a: Bound, b: Bound) -> Bound:
    """The higher of two bounds that both hold from below."""
    if a is None or b is None:
        return b if a is None else a
    if less(b, a):
        return a
    return b if less(a, b) or type(b) is Size else a


def _meet(one: Range, other: Range) -> Range:
    """The intersection of two ranges, which is not empty."""
    return _greatest(one[0], other[0]), _least(one[1], other[1])


def _below(a: Bound, b: Bound) -> Bound:
    """A bound from below for what is bounded by either."""
    if a is None or b is None:
        return None
    return a if a == b or less(a, b) else b if less(b, a) else None


def _above(a: Bound, b: Bound) -> Bound:
    if a is None or b is None:
        return None
    return b if a == b or less(a, b) else a if less(b, a) else None


def _hull(one: Range, other: Range) -> Range:
    """The smallest range that contains both."""
    if _float(one, other):
        return (min(one[0], other[0]), max(one[1], other[1])) if None not in (*one, *other) else UNKNOWN
    if less(one[1], one[0]):
        return other  # nothing is chosen there
    if less(other[1], other[0]):
        return one
    return _below(one[0], other[0]), _above(one[1], other[1])


#: Comparisons and their opposites; `_allowed` reads them.
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _allowed(comparison: str, limit: Range) -> Range:
    """The range of an integer for which a comparison with a value in a range is true."""
    low, high = limit
    match comparison:
        case "lt":
            return None, None if high is None else high - 1
        case "le":
            return None, high
        case "gt":
            return None if low is None else low + 1, None
        case _:
            return low, None


def _widened(dtype: str, found: Range) -> Range:
    low, high = found
    margin = _ROUNDING[dtype] * max(abs(low), abs(high)) + _TINY[dtype]
    return low - margin, high + margin


def _converted(source: str, target: str, found: Range) -> Range:
    low, high = found
    if target in FLOATS:
        low, high = _numbers(found)
        if low is None or high is None or max(abs(low), abs(high)) >= 2**63:
            return UNKNOWN
        return float(round_to(target, float(low))), float(round_to(target, float(high)))
    if target == "bool":
        return UNKNOWN
    if source in FLOATS:
        if low is None or high is None or max(abs(low), abs(high)) >= 2**62:
            return UNKNOWN
        return math.trunc(low), math.trunc(high)
    least, most = _LIMITS[target]
    bottom, top = _numbers(found)
    held = target == "i64" or (bottom is not None and top is not None and bottom >= least and top <= most)
    return found if held else UNKNOWN


# -- operators -------------------------------------------------------------------------------------


def _add(a: Range, b: Range) -> Range:
    """An operand without a bound at one end may wrap around there, so the result may be anything."""
    if None in (*a, *b):
        return UNKNOWN
    return a[0] + b[0], a[1] + b[1]


def _neg(a: Range) -> Range:
    return UNKNOWN if None in a else (-a[1], -a[0])


def _mul(a: Range, b: Range) -> Range:
    corners: list[float] = []
    for x in a:
        for y in b:
            if x is None or y is None or type(x) is Size or type(y) is Size:
                return UNKNOWN
            corners.append(x * y)
    return min(corners), max(corners)


def _minimum(a: Range, b: Range) -> Range:
    if _float(a, b):
        return (min(a[0], b[0]), min(a[1], b[1])) if None not in (*a, *b) else UNKNOWN
    return _below(a[0], b[0]), _least(a[1], b[1])


def _maximum(a: Range, b: Range) -> Range:
    if _float(a, b):
        return (max(a[0], b[0]), max(a[1], b[1])) if None not in (*a, *b) else UNKNOWN
    return _greatest(a[0], b[0]), _above(a[1], b[1])


def _float(a: Range, b: Range) -> bool:
    """Floats need the ranges of both operands: a range says that there is no NaN."""
    return any(type(end) is float for end in (*a, *b))


def _abs(a: Range) -> Range:
    low, high = a
    if less(-1, low) if type(low) is not float else low >= 0:
        return a
    if type(low) in (int, float) and type(high) in (int, float):
        return 0 if type(low) is int else 0.0, max(-low, high)
    return UNKNOWN


def _floordiv(a: Range, b: Range) -> Range:
    divisor = b[0]
    if type(divisor) is not int or divisor <= 0 or b[1] != divisor:
        return UNKNOWN
    low, high = a
    return None if low is None else low // divisor, None if high is None else high // divisor


def _mod(a: Range, b: Range) -> Range:
    divisor = b[0]
    if type(divisor) is not int or divisor <= 0 or b[1] != divisor:
        return UNKNOWN
    return a if less(-1, a[0]) and less(a[1], divisor) else (0, divisor - 1)


def _and(a: Range, b: Range) -> Range:
    """At most an operand that is not negative."""
    found = [high for low, high in (a, b) if type(low) is int and type(high) is int and low >= 0]
    return (0, min(found)) if found else UNKNOWN


def _shr(a: Range, b: Range) -> Range:
    places = b[0]
    if type(places) is not int or b[1] != places or not 0 <= places < 63:
        return UNKNOWN
    low, high = a
    return low >> places if type(low) is int else None, high >> places if type(high) is int else None


def _rounded(function: Callable[[float], int]) -> Callable[[Range], Range]:
    def rule(a: Range) -> Range:
        low, high = a
        if type(low) is not float or type(high) is not float:
            return UNKNOWN
        return float(function(low)), float(function(high))

    return rule


_RULES: dict[str, Callable[..., Range]] = {
    "add": _add,
    "sub": lambda a, b: _add(a, _neg(b)),
    "mul": _mul,
    "fma": lambda a, b, c: _add(_mul(a, b), c),
    "neg": _neg,
    "abs": _abs,
    "minimum": _minimum,
    "maximum": _maximum,
    "floordiv": _floordiv,
    "mod": _mod,
    "and": _and,
    "shr": _shr,
    "floor": _rounded(math.floor),
    "ceil": _rounded(math.ceil),
    "trunc": _rounded(math.trunc),
    "round": _rounded(round),
}
#: Operators of floats that do not round.
_EXACT = frozenset(("neg", "abs", "minimum", "maximum", "floor", "ceil", "trunc", "round"))
