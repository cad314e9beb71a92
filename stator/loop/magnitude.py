"""How great the numbers are that computing an index meets: whether 64 bits hold them, and whether 32 do.

Indices are integers of any size where they are rewritten and compared; what runs wraps around. So an index stands for
what a program computes only where `holds` says so, and a kernel counts in 32 bits only below what `reach` finds.
Neighbours: `index.py`; `expr.py` folds arithmetic to indices, the Triton writer chooses what it counts with.
"""

from __future__ import annotations

from stator.loop.index import Axis, Index, Indirect, Mod
from stator.sizes import Extent, Size, maximum

#: The greatest factor of a symbolic size that is taken not to overflow: sizes of tensors are far from 64 bits.
_GREATEST_FACTOR = 1 << 16


def holds(position: Index) -> bool:
    """Whether 64 bits hold every value of an index that a program computes, so that it does not wrap around.

    Numbers that a user gives may be anything; sizes of tensors are taken to be what a tensor can have.
    """
    low, high = position.bounds()
    if type(low) is int and type(high) is int:
        return low >= -(2**63) and high < 2**63
    parts = [position.const, *[coefficient for _, coefficient in position.terms]]
    return all(_moderate(part) for part in parts) and all(
        symbol.low is not None for end in (low, high) if isinstance(end, Size) for symbol in end.symbols
    )


def _moderate(part: Extent) -> bool:
    if not isinstance(part, Size):
        return abs(part) <= _GREATEST_FACTOR**2
    factors = [part.const, *[factor for _, factor in part.terms]]
    return all(abs(factor) <= _GREATEST_FACTOR for factor in factors) and all(s.low is not None for s in part.symbols)


def reach(position: Index) -> Extent:
    """What no number that is met in computing an index is greater than, sign aside."""
    total = _size_of(position.const)
    inside: Extent = 0
    for atom, coefficient in position.terms:
        match atom:
            case Axis():
                most = atom.size - 1
            case Indirect():
                most = atom.bound - 1
            case Mod():
                inside, most = maximum(inside, reach(atom.inner)), atom.divisor - 1
            case _:
                inside = maximum(inside, reach(atom.inner))
                most = (reach(atom.inner) + atom.divisor - 1) // atom.divisor  # below zero, away from it
        total = total + _size_of(coefficient) * most
    return maximum(total, inside)


def _size_of(extent: Extent) -> Extent:
    return abs(extent) if isinstance(extent, int) else maximum(extent, -extent)
