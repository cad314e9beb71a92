"""How threads that hold a tile in a layout go to it in shared memory: vectors of registers and where they lie.

The place of a register is the exclusive or of what the bits of its number, of the lane and of the warp add to the
offset. Registers whose places follow one another make a vector, as wide as alignment allows. Neighbours: `memory` has
the maps; `conversion` and local loads and stores go by these plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stator.tile.layouts.bits import Span, apply
from stator.tile.layouts.linear import LANES, Base, Holder, Layout, LayoutError, flat
from stator.tile.layouts.memory import Shared

#: Bytes that a thread moves at once, at most; bytes of a bank, and how many there are.
VECTOR_BYTES, BANK_BYTES, BANKS = 16, 4, 32


@dataclass(frozen=True)
class Vector:
    """Neighbours in memory from an offset on: the registers that hold each of them, the first one for stores."""

    offset: int
    registers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Access:
    """Every vector is at `vector.offset` ^ what the lane's and the warp's bits add, in elements, before padding.

    All of these are multiples of `width`. `duplicates` are the bits of lane and warp that need not be set in a thread
    that stores; `fixed` says that a vector's offset has no bit that the thread's place has, so that it may be added.
    """

    width: int
    vectors: tuple[Vector, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    duplicates: Holder
    fixed: bool

    def place(self, lane: int, warp: int) -> int:
        """The thread's own part of an offset."""
        return apply(self.lane, lane) ^ apply(self.warp, warp)


def offsets(layout: Layout, shared: Shared) -> tuple[list[int], list[int], list[int]]:
    """What each bit of register, lane and warp adds to the offset; the layout may be of a part of what lies there."""
    if len(layout.shape) != shared.rank or any(n > m for n, m in zip(layout.shape, shared.shape, strict=True)):
        raise LayoutError(f"a tile of {layout.shape} does not lie in {shared.shape}")
    columns = [apply(shared.places, flat(shared.shape, base)) for base in layout.bases]
    registers = len(layout.register)
    return columns[:registers], columns[registers : registers + LANES], columns[registers + LANES :]


def _width(registers: Sequence[int], threads: Sequence[int], shared: Shared, itemsize: int) -> int:
    span, width = Span(registers), 1
    interval, pad = shared.padding
    while width * 2 * itemsize <= VECTOR_BYTES and width in span and not any(offset & width for offset in threads):
        if interval and (width * 2 > interval or pad % (width * 2)):
            break
        width *= 2
    return width


def plan_access(layout: Layout, shared: Shared, itemsize: int, start: Base | None = None) -> Access:
    """The vectors of every thread. `itemsize` is in bytes.

    Of a part of what lies there, `start` is its first element: a multiple of its size along each axis.
    """
    registers, lane, warp = offsets(layout, shared)
    first = 0 if start is None else shared.offset_of(start)
    width = _width(registers, [*lane, *warp], shared, itemsize)
    found: dict[int, list[list[int]]] = {}
    for register in range(layout.registers):
        offset = first ^ apply(registers, register)
        places = found.setdefault(offset // width, [[] for _ in range(width)])
        places[offset % width].append(register)
    vectors = tuple([Vector(number * width, tuple(map(tuple, places))) for number, places in found.items()])
    mine = own = 0
    for offset in (*lane, *warp):
        mine |= offset
    for vector in vectors:
        own |= vector.offset
    return Access(width, vectors, tuple(lane), tuple(warp), layout.free_bits, not mine & own)


def wavefronts(access: Access, shared: Shared, itemsize: int) -> int:
    """In how many turns the banks serve a vector of each lane; lanes go together as far as 128 bytes reach."""
    size = access.width * itemsize
    together = max(min(BANKS * BANK_BYTES // size, 1 << LANES), 1)
    turns = 0
    for first in range(0, 1 << LANES, together):
        banks: dict[int, set[int]] = {}
        for lane in range(first, first + together):
            start = shared.padded(access.place(lane, 0)) * itemsize
            for byte in range(start, start + size, BANK_BYTES):
                word = byte // BANK_BYTES
                banks.setdefault(word % BANKS, set()).add(word)
        turns += max(map(len, banks.values()))
    return turns


@dataclass(frozen=True)
class Matrices:
    """A load by `ldmatrix`: the address of a row that each lane gives, and which registers each 8x8 matrix fills.

    In a group there are one, two or four matrices; matrix i has a word of two neighbouring registers in each thread,
    `groups[g][1][i]`. The row's offset is that of the group ^ what bits of lane and warp add.
    """

    transposed: bool
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    groups: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def plan_matrices(layout: Layout, shared: Shared, itemsize: int, start: Base | None = None) -> Matrices | None:
    """How `ldmatrix` loads an operand of elements of 16 bits; None where it cannot.

    It gives lane t two neighbours of row t / 4 of each 8x8 matrix, or of its transpose, from rows of 16 bytes.
    `start` is as for `plan_access`.
    """
    if itemsize != 2 or layout.registers < 2 or shared.padding[0]:
        return None
    registers, lane, warp = offsets(layout, shared)
    direct = registers[0] == 1 and lane[:2] == [2, 4]
    if direct:
        rows = lane[2:]
    elif lane[2:] == [1, 2, 4]:
        rows = [registers[0], *lane[:2]]
    else:
        return None
    first = 0 if start is None else shared.offset_of(start)
    if any(offset % 8 for offset in (*rows, *registers[1:], *warp, first)):
        return None
    inside = min(len(registers) - 1, 2)
    groups = []
    for number in range(0, layout.registers, 2 << inside):
        words = tuple([(number + 2 * i, number + 2 * i + 1) for i in range(1 << inside)])
        groups.append((first ^ apply(registers, number), words))
    more = [*registers[1 : 1 + inside], *[0] * (2 - inside)]
    return Matrices(not direct, (*rows, *more), tuple(warp), tuple(groups))


def threads(layout: Layout) -> list[tuple[int, int]]:
    """Every lane and warp of a program."""
    return [(lane, warp) for warp, lane in product(range(layout.warps), range(1 << LANES))]
