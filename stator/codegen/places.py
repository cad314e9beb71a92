"""Positions as text, as every target writes them: sums of products, whole quotients and remainders.

What differs among targets is how leaves, sizes and divisions are written; `Whole` is that of C and C++. Users: the
printers of `c`, `cpp`, `triton`.
"""

from __future__ import annotations

from collections.abc import Callable

from stator.base.records import dataclass
from stator.loop.index import Axis, FloorDiv, Index, Indirect
from stator.sizes import Extent, Size, Symbol, fold

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


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers of 64 bits in a language: their type, and the function of each operator that it has not."""

    type: str
    functions: dict[str, str]

    def extent(self, value: Extent) -> str:
        """A size, where every symbol is a variable of its own name."""
        return fold(value, self._leaf, self._apply) if isinstance(value, Size) else str(value)

    def divide(self, inner: str, sign: str, divisor: str, nonnegative: bool) -> str:
        """As C does, towards 0, where that is the same."""
        if nonnegative:
            return f"(({inner}) {sign[0]} {divisor})"
        return self._apply(sign, f"({self.type})({inner})", f"({self.type}){divisor}")

    def _leaf(self, item: Symbol | int) -> str:
        return item.name if isinstance(item, Symbol) else f"({self.type}){item}"

    def _apply(self, op: str, left: str, right: str) -> str:
        if op in self.functions:
            return f"{self.functions[op]}({left}, {right})"
        return f"{left} * {right}" if op == "*" else f"({left} {op} {right})"
