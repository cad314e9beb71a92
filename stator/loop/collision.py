"""Writes at loaded positions: which iterations may write to one address, so that their order matters.

Eager's order among writes to one address is that of the loops: the last one wins, sums are rounded in turn. An axis is
`private` if different points of it never write to one address, whatever was loaded. Private axes may run in any order
and in parallel; the others keep their order and run in one thread.
Neighbours: `fusion` and `canonical` keep that order; the C++ plan shares private axes among threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from stator.loop.extent import Bound, less
from stator.loop.index import Axis, FloorDiv, Index, Indirect, Mod
from stator.sizes import Extent

#: "store" writes each address once, "put" perhaps more than once; "sum" leaves the sum of all that is written to an
#: address, whatever was there; the others combine with what is there, by the operator of that name.
MODES = ("store", "put", "sum", "add", "mul", "minimum", "maximum")


class Write(Protocol):
    """A nest, or a store of a kernel."""

    @property
    def mode(self) -> str: ...


def scatters(write: Write) -> bool:
    """Whether different iterations may write one address, in an order that matters; of sums it does not."""
    return write.mode not in ("store", "sum")


def colliding(scattered: Iterable[Index], axes: Iterable[Axis]) -> frozenset[Axis]:
    """The axes that are not private to each of the positions of writes that scatter."""
    axes = frozenset(axes)
    return frozenset().union(*[axes - private(index) for index in scattered])


def private(index: Index) -> frozenset[Axis]:
    """The axes that the address determines: their atoms are its digits in a mixed radix number system."""
    reach: Extent = 0
    for atom, coefficient in reversed(index.terms):  # the largest stride is first
        most = _most(atom)
        if most is None or not less(reach, coefficient):
            return frozenset()
        reach += coefficient * most
    return frozenset([atom for atom, _ in index.terms if type(atom) is Axis])


def _most(atom: object) -> Bound:
    """The highest value of an atom, if the lowest is known to be 0 or more."""
    match atom:
        case Axis():
            return atom.size - 1
        case Indirect():
            return atom.bound - 1
        case Mod():
            return atom.divisor - 1
        case FloorDiv() if atom.inner.nonnegative and atom.inner.high is not None:
            return atom.inner.high // atom.divisor
    return None


def disjoint(one: Index, other: Index) -> bool:
    """Whether no point of one index is a point of the other, by their bounds modulo some stride."""
    for stride in [0, *{c for _, c in one.terms if less(1, c)}]:
        (low, high), (bottom, top) = ((i % stride if stride != 0 else i).bounds() for i in (one, other))
        if less(high, bottom) or less(top, low):
            return True
    return False
