"""Extents, ints or symbolic sizes, as indices need them: what is known of their order, and how they are written.

Nothing here decides by hint: what is not known for all values of the symbols counts as false.
"""

from __future__ import annotations

from typing import TypeAlias

from stator.sizes import Condition, Extent, Size, prove

Bound: TypeAlias = "Extent | None"


def less(left: Bound, right: Bound) -> bool:
    """Whether `left < right` for all values of symbols, as far as is known; None is an unknown number."""
    if type(left) is int and type(right) is int:
        return left < right
    if left is None or right is None:
        return False
    return prove(Condition("<", left, right)) is True


def quotient(part: Extent, n: Extent) -> Extent:
    """How often `n` goes into one part: exactly, or rounded down where both are ints and the part is the greater."""
    if type(part) is int and type(n) is int:
        return part // n if abs(part) >= n else 0
    return part // n if part % n == 0 else 0


def weight(coefficient: Extent) -> tuple[int, int, str]:
    """An order of coefficients by what they may grow to, whatever the symbols are in the call at hand."""
    if type(coefficient) is not Size:
        return 0, -abs(coefficient), ""  # type: ignore[arg-type]
    degrees = [(sum([power for _, power in monomial]), abs(factor)) for monomial, factor in coefficient.terms]
    degree, factor = max(degrees)
    return -degree, -factor, repr(coefficient)


def wrapped(extent: Extent) -> str:
    """The text of an extent as an operand."""
    text = str(extent)
    return text if type(extent) is int or text.isidentifier() else f"({text})"


def signed(extent: Extent) -> tuple[bool, str]:
    """Whether it is written as negative, and what is written then."""
    if type(extent) is int:
        return extent < 0, str(abs(extent))
    negative = less(extent, 0)
    return negative, wrapped(-extent if negative else extent)
