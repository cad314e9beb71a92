"""Positions as text, as every target writes them: sums of products, whole quotients and remainders.

What differs among targets is how leaves, sizes and divisions are written. Users: the printers of `c`, `cpp`, `triton`.
"""

from __future__ import annotations

from collections.abc import Callable

from stator.loop.index import Axis, FloorDiv, Index, Indirect
from stator.sizes import Extent

#: Rounds towards minus infinity: dividend, "//" or "%", divisor, whether the dividend is known not to be negative.
Divide = Callable[[str, str, str, bool], str]


def place(index: Index, leaf: Callable[[Axis | Indirect], str], extent: Callable[[Extent], str], divide: Divide) -> str:
    """An index, with names for its axes and for what it loads."""
    parts = []
    for atom, coefficient in index.terms:
        if isinstance(atom, Axis | Indirect):
            text = leaf(atom)
        else:
            sign = "//" if isinstance(atom, FloorDiv) else "%"
            inner = place(atom.inner, leaf, extent, divide)
            text = divide(inner, sign, extent(atom.divisor), atom.inner.nonnegative)
        parts.append(text if coefficient == 1 else f"{extent(coefficient)}*{text}")
    if index.const != 0 or not parts:
        parts.append(extent(index.const))
    return " + ".join(parts)
