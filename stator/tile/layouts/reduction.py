"""How elements along an axis are combined: in the registers of a thread, between lanes, between warps.

First each thread combines its own registers, then lanes that differ in one bit exchange what they have, so that all
have the result; last, where warps share an axis, each writes what it has to shared memory and reads that of the others.
Neighbours: `linear` has layouts; `gpu.scratch` says how much memory that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from stator.tile.layouts.bits import Span
from stator.tile.layouts.linear import Layout, LayoutError, flat


@dataclass(frozen=True)
class Reduction:
    """A plan. `groups` has for each register of the result those that are combined, in the axis's order; `lanes` are
    the numbers by whose exclusive or lanes exchange, in the axis's order from its lowest bit on; `warps` are the bits
    of a warp's number along the axis, likewise. Without `warps` no memory is needed.
    """

    groups: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]

    @property
    def partials(self) -> int:
        """How many parts of each result there are, one a group of warps."""
        return 1 << len(self.warps)


@lru_cache(maxsize=1024)
def plan_reduction(layout: Layout, axis: int) -> Reduction:
    """The plan of a layout each of whose bases is along the axis or not; LayoutError where one is both."""
    others = [i for i in range(layout.rank) if i != axis]
    if any(base[axis] and any(base[i] for i in others) for base in layout.bases):
        raise LayoutError(f"bits of {layout} go along axis {axis} and another one at once")
    result = layout.slice(axis)
    kept: dict[int, dict[int, int]] = {}
    for register in range(layout.registers):
        element = list(layout.coordinates(register, 0, 0))
        place = element.pop(axis)
        number = flat([layout.shape[i] for i in others], element)
        kept.setdefault(number, {}).setdefault(place, register)
    wanted = [0] if result is None else [result.number(register, 0, 0) for register in range(result.registers)]
    groups = tuple([tuple([kept[number][place] for place in sorted(kept[number])]) for number in wanted])
    # What a register has already is not combined again: bits whose base others have are left out.
    span = Span([flat(layout.shape, base) for base in layout.register])
    lanes = _along([(1 << bit, base) for bit, base in enumerate(layout.lane)], layout, axis, span)
    warps = _along([(1 << bit, base) for bit, base in enumerate(layout.warp)], layout, axis, span)
    return Reduction(groups, lanes, warps)


def _along(bits: list[tuple[int, tuple[int, ...]]], layout: Layout, axis: int, span: Span) -> tuple[int, ...]:
    found = [(base[axis], bit) for bit, base in bits if base[axis] and span.add(flat(layout.shape, base))]
    return tuple([bit for _, bit in sorted(found)])


def partial_of(plan: Reduction, warp: int) -> int:
    """Which part a warp has: its number's bits along the axis, put together."""
    return sum([bool(warp & bit) << i for i, bit in enumerate(plan.warps)])


def partial_elements(layout: Layout, axis: int, plan: Reduction) -> int:
    """How many elements the parts have: part p of result n is at p * results + n; results are row-major."""
    results = prod([size for i, size in enumerate(layout.shape) if i != axis])
    return plan.partials * results if plan.warps else 0
