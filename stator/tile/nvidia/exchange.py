"""From one layout to another: a thread gets the elements that it is to hold, from wherever they are.

What a thread has itself costs nothing; what another lane of its warp has comes by shuffles, if few are enough; all else
goes through shared memory. Views of a tile in another shape, broadcasts and permutations are the same: the elements of
the result are those of the operand, named by a linear function.
Neighbours: `threads` has the means, `places` the maps.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.cpu.casts import register
from stator.tile.ir.types import Element
from stator.tile.layouts.bits import Span
from stator.tile.layouts.bits import apply as combined
from stator.tile.layouts.linear import LANES
from stator.tile.nvidia.places import Places
from stator.tile.nvidia.threads import Threads, padded_size

#: More shuffles than this for a register of the result cost more than shared memory.
_SHUFFLES = 2


def fetch(threads: Threads, element: Element, values: Sequence[str], have: Places, want: Places) -> list[str]:
    """The registers of `want`, whose elements are those of the tile that `have` holds."""
    renamed = own(values, have, want)
    if renamed is not None:
        return renamed
    shuffled = _by_shuffles(threads, element, values, have, want)
    if shuffled is not None:
        return shuffled
    return through_memory(threads, element, values, have, want)


def through_memory(
    threads: Threads, element: Element, values: Sequence[str], have: Places, want: Places, once: bool = False
) -> list[str]:
    """Every element by way of shared memory."""
    size = 1
    for each in have.shape:
        size *= each
    threads.exchange(padded_size(size * element.itemsize))
    threads.write_tile(element, values, have, once)
    threads.barrier()
    return threads.read_tile(element, want)


def own(values: Sequence[str], have: Places, want: Places) -> list[str] | None:
    """What each thread has itself, if that is all that it is to get."""
    if have.threads != want.threads or any(each not in have.at for each in want.elements):
        return None
    return [values[have.at[each]] for each in want.elements]


def _by_shuffles(
    threads: Threads, element: Element, values: Sequence[str], have: Places, want: Places
) -> list[str] | None:
    """Each lane asks one of its warp: for lanes and registers alike, where an element lies follows from its bits."""
    if have.warps != want.warps:
        return None
    span = Span([*have.registers, *have.lanes])
    by_lane = [span.express(basis) for basis in want.lanes]
    by_register = [span.express(each) for each in want.elements]
    if None in by_lane or None in by_register:
        return None
    count = len(have.registers)
    low = (1 << count) - 1
    lanes = [(found or 0) >> count for found in by_lane]
    moved = [(found or 0) & low for found in by_lane]
    kinds = sorted({combined(moved, lane) for lane in range(1 << LANES)})
    if len(kinds) > _SHUFFLES:
        return None
    return _shuffle(threads, element, values, (lanes, moved, kinds), [(f or 0) for f in by_register], count)


def _shuffle(
    threads: Threads,
    element: Element,
    values: Sequence[str],
    maps: tuple[list[int], list[int], list[int]],
    targets: Sequence[int],
    count: int,
) -> list[str]:
    lanes, moved, kinds = maps
    m, low = threads.m, (1 << count) - 1
    source = threads.thread_bits(lanes)
    chosen = threads.thread_bits(moved)
    done: dict[int, str] = {}
    for target in targets:
        if target in done:
            continue
        lane = m.op("xor", "i32", source, str(target >> count)) if target >> count else source
        parts = [threads.of_lane(element, values[target & low ^ kind], lane) for kind in kinds]
        found = parts[0]
        for kind, part in zip(kinds[1:], parts[1:], strict=True):
            found = select(threads, element, m.compare("eq", "i32", chosen, str(kind)), part, found)
        done[target] = found
    return [done[target] for target in targets]


def select(threads: Threads, element: Element, condition: str, a: str, b: str) -> str:
    """Of two values in registers the first where a condition holds."""
    return threads.m.select(condition, register(element), a, b)
