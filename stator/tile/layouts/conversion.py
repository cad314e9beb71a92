"""How a tile comes from one layout into another: nothing, other registers, shuffles in a warp, or shared memory.

A plan is data that a back end executes for every thread alike. Shuffles go in rounds, one for each register of the
target:

    v[x]    = old[x ^ before(lane)]                             registers exchanged by the lane's bits
    r[t]    = shuffle(v[rounds[t].register], from lane (rounds[t].lane ^ lanes(lane) ^ warps(warp)))
    new[x]  = r[x ^ after(lane)]                                once more

where before, lanes, after and warps are linear: they are the columns for each bit. In shared memory elements lie so
that both the stores and the loads are vectors, and the lanes of each go to different banks as far as that is possible.
Neighbours: `linear` has the layouts, `access` the vectors in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

from stator.tile.layouts.access import BANK_BYTES, BANKS, VECTOR_BYTES, Access, plan_access
from stator.tile.layouts.bits import Span, apply, independent, intersection
from stator.tile.layouts.linear import LANES, Layout, Move, unflat
from stator.tile.layouts.memory import Shared

#: Rounds of shuffles, with selections of registers as half of one, up to which they are taken.
SHUFFLES = 64


@dataclass(frozen=True)
class Nothing:
    """Every register stays as it is."""


@dataclass(frozen=True)
class Registers:
    """Each thread has it: new register i is old register sources[i]."""

    sources: tuple[int, ...]


class Round(NamedTuple):
    """One shuffle: which register every thread gives, and the part of the source lane that is the same in all."""

    register: int
    lane: int


@dataclass(frozen=True)
class Shuffles:
    """Rounds of shuffles in a warp, as above."""

    before: tuple[int, ...]
    rounds: tuple[Round, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def cost(self) -> int:
        selections = sum(map(bool, self.before)) + sum(map(bool, self.after))
        return len(self.rounds) + len(self.rounds) * selections // 2


@dataclass(frozen=True)
class ThroughShared:
    """Stored by `store`, a barrier, loaded by `load`."""

    shared: Shared
    store: Access
    load: Access


Conversion: TypeAlias = Nothing | Registers | Shuffles | ThroughShared


@lru_cache(maxsize=1024)
def plan_conversion(source: Layout, target: Layout, itemsize: int) -> Conversion:
    """The cheapest way. `itemsize` is in bytes: those of a tile of i1 are 1."""
    if source == target:
        return Nothing()
    move = target.invert_and_compose(source)
    if move.uniform:
        sources = tuple(move.registers)
        same = sources == tuple(range(source.registers))
        return Nothing() if same else Registers(sources)
    if move.within_warp:
        shuffles = plan_shuffles(move)
        if shuffles is not None and shuffles.cost <= SHUFFLES:
            return shuffles
    shared = scratch_layout(source, target, itemsize)
    return ThroughShared(shared, plan_access(source, shared, itemsize), plan_access(target, shared, itemsize))


def plan_shuffles(move: Move) -> Shuffles | None:
    """The rounds; None where lanes would have to give more registers at once than one."""
    if any(column.register for column in move.warp):
        return None
    from_register = [column.lane for column in move.register]
    columns, after = [column.lane for column in move.lane], [0] * LANES
    # Lanes that would read the same lane read different registers of the target in a round, if these are elsewhere.
    span, waiting = Span(), []
    for bit, column in enumerate(columns):
        if not span.add(column):
            waiting.append(bit)
    for bit in waiting:
        for register, step in enumerate(from_register):
            if span.add(columns[bit] ^ step):
                columns[bit] ^= step
                after[bit] = 1 << register
                break
    registers = [column.register for column in move.register]
    given = [column.register ^ apply(registers, after[bit]) for bit, column in enumerate(move.lane)]
    before = _by_source(columns, given)
    if before is None or any(apply(before, column.lane) for column in move.warp):
        return None
    rounds = []
    for number in range(1 << len(move.register)):
        lane = apply(from_register, number)
        rounds.append(Round(apply(registers, number) ^ apply(before, lane), lane))
    return Shuffles(tuple(before), tuple(rounds), tuple(columns), tuple([c.lane for c in move.warp]), tuple(after))


def _by_source(columns: Sequence[int], given: Sequence[int]) -> list[int] | None:
    """What a lane gives, as a map of its own bits: `given` is by the lane that reads, `columns` from which lane."""
    span, chosen = Span(), []
    for bit, column in enumerate(columns):
        parts = span.express(column)
        if parts is None:
            chosen.append(bit)
            span.add(column)
        elif apply([given[other] for other in chosen], parts) != given[bit]:
            return None
    known = [given[bit] for bit in chosen]
    for unit in [1 << bit for bit in range(LANES)]:
        if span.express(unit) is None:
            span.add(unit)
            known.append(0)
    parts_of = [span.express(1 << bit) for bit in range(LANES)]
    return [apply(known, parts) for parts in parts_of if parts is not None]


def scratch_layout(source: Layout, target: Layout, itemsize: int) -> Shared:
    """Where elements lie between: offsets are vectors of both, then banks, then rows of banks.

    Two lanes conflict that go to one bank in different rows. Rows are therefore made of sums of a base of the source's
    lanes and one of the target's, which neither of them has alone (the optimal swizzling of "Linear Layouts").
    """
    count = len(source.register), len(target.register)
    vector = intersection(source.columns[: count[0]], target.columns[: count[1]])
    vector = vector[: (VECTOR_BYTES // itemsize).bit_length() - 1]
    bank_bits = max((BANKS * BANK_BYTES // itemsize).bit_length() - 1 - len(vector), 0)
    total = prod(source.shape).bit_length() - 1
    lanes = []
    for layout, registers in ((source, count[0]), (target, count[1])):
        together = min(bank_bits, LANES)  # lanes that the banks serve at once
        lanes.append(independent(layout.columns[registers : registers + together], vector))
    common = independent(intersection(lanes[0], lanes[1]), vector)
    apart = [independent(part, [*vector, *common]) for part in lanes]
    pairs = [a ^ b for a, b in zip(*apart, strict=False)]
    units = [1 << bit for bit in range(total)]
    others = independent(units, [*vector, *lanes[0], *lanes[1]])
    rows = max(total - len(vector) - bank_bits, 0)
    chosen = independent([*others, *pairs], vector)[:rows]
    if len(chosen) < rows:
        chosen += independent([*reversed(units)], [*vector, *lanes[0], *lanes[1], *chosen])[: rows - len(chosen)]
    if len(chosen) < rows:
        chosen += independent(units, [*vector, *chosen, *lanes[1]])[: rows - len(chosen)]
    if len(chosen) < rows:
        chosen += independent(units, [*vector, *chosen])[: rows - len(chosen)]
    banks = independent([*lanes[0], *lanes[1], *units], [*vector, *chosen])
    bases = [*vector, *banks[: total - len(vector) - len(chosen)], *chosen]
    return Shared(source.shape, tuple([unflat(source.shape, base) for base in bases]))
