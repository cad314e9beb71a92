"""Which thread holds which elements of a tile, as a linear map of bits.

An element is its row-major index, whose bits are those of its coordinates, for all sizes are powers of two. The
register, lane and warp numbers that hold it are bits too: an element is the exclusive or of the bases of those bits
that are set. A basis of 0 says that the same elements are held again.
Neighbours: `stator.tile.layouts` decides layouts; everything here that moves elements asks this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from stator.tile.layouts.bits import Span
from stator.tile.layouts.linear import LANES


def one_bit(number: int) -> bool:
    """Whether exactly one bit is set."""
    return number > 0 and number & (number - 1) == 0


def bits_of(size: int) -> int:
    """How many bits a size has, which is a power of two."""
    return size.bit_length() - 1


@dataclass(frozen=True)
class Places:
    """The bases of a tile's registers, lanes and warps, as row-major indices."""

    shape: tuple[int, ...]
    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    #: What thread 0 has in register 0, if that is not element 0.
    origin: int = 0

    @property
    def count(self) -> int:
        """How many registers a thread has."""
        return 1 << len(self.registers)

    @property
    def threads(self) -> tuple[int, ...]:
        """Lanes, then warps: the bits of a thread's number."""
        return self.lanes + self.warps

    @cached_property
    def elements(self) -> tuple[int, ...]:
        """The element of each register of thread 0."""
        found = [self.origin]
        for basis in self.registers:
            found += [element ^ basis for element in found]
        return tuple(found)

    @cached_property
    def at(self) -> dict[int, int]:
        """An element of thread 0 → the first register that has it."""
        found: dict[int, int] = {}
        for register, element in enumerate(self.elements):
            found.setdefault(element, register)
        return found

    @cached_property
    def alone(self) -> int:
        """The bits of a thread's number that give nothing new: who has none of them set speaks for the others."""
        span, found = Span(self.registers), 0
        for bit, basis in enumerate(self.threads):
            found |= 0 if span.add(basis) else 1 << bit
        return found

    @cached_property
    def first(self) -> tuple[int, ...]:
        """The registers that hold an element no register before them holds."""
        return tuple(sorted(self.at.values()))

    def through(self, function: Callable[[int], int], shape: tuple[int, ...]) -> Places:
        """The elements of another tile that a linear function gives for those of this one."""
        registers, lanes, warps = (tuple(map(function, bases)) for bases in (self.registers, self.lanes, self.warps))
        return Places(shape, registers, lanes, warps, function(self.origin))

    def vector(self, most: int) -> int:
        """How many registers in a row hold elements in a row along the last axis, at most so many."""
        found = 1
        most = min(most, self.origin & -self.origin) if self.origin else most
        for bit, basis in enumerate(self.registers):
            if basis != 1 << bit or found * 2 > most or found * 2 > self.shape[-1]:
                break
            found *= 2
        others = self.registers[bits_of(found) :] + self.threads
        return found if all(basis & (found - 1) == 0 for basis in others) else 1


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a row-major tile."""
    found, stride = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        found[axis] = stride
        stride *= shape[axis]
    return tuple(found)


def coordinates(element: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates of an element."""
    return tuple([element // stride % size for stride, size in zip(strides(shape), shape, strict=True)])


def element_at(place: Sequence[int], shape: Sequence[int]) -> int:
    """The element at coordinates."""
    return sum([at * stride for at, stride in zip(place, strides(shape), strict=True)])


def without(axis: int, shape: Sequence[int]) -> Callable[[int], int]:
    """From elements of a tile to those of one that lacks an axis."""
    rest = [*shape[:axis], *shape[axis + 1 :]]

    def function(element: int) -> int:
        place = coordinates(element, shape)
        return element_at([*place[:axis], *place[axis + 1 :]], rest)

    return function


def spread(warps: int, shape: Sequence[int], most: int = 4) -> Places:
    """A tile in its row-major order: a few registers, then lanes, then warps, then registers again."""
    total = bits_of(prod(shape))
    inner = min(bits_of(most), total)
    order = [1 << bit for bit in range(total)]
    registers, order = order[:inner], order[inner:]
    lanes, order = order[:LANES], order[LANES:]
    warped, order = order[: bits_of(warps)], order[bits_of(warps) :]
    lanes += [0] * (LANES - len(lanes))
    warped += [0] * (bits_of(warps) - len(warped))
    return Places(tuple(shape), tuple(registers + order), tuple(lanes), tuple(warped))


def dropped(mask: int) -> Callable[[int], int]:
    """From elements to numbers in which the bits of a mask are left out."""

    def function(element: int) -> int:
        found, place, bit = 0, 0, 0
        while element >> bit or mask >> bit:
            if not mask >> bit & 1:
                found |= (element >> bit & 1) << place
                place += 1
            bit += 1
        return found

    return function


def permuted(order: Sequence[int], shape: Sequence[int]) -> Callable[[int], int]:
    """From elements of a tile of this shape whose axis i was axis order[i] to those of the tile that it was."""
    before = [0] * len(order)
    for axis, old in enumerate(order):
        before[old] = shape[axis]

    def function(element: int) -> int:
        place = coordinates(element, shape)
        old = [0] * len(order)
        for axis, at in zip(order, place, strict=True):
            old[axis] = at
        return element_at(old, before)

    return function
