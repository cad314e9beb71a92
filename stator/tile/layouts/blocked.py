"""Blocked layouts: each thread has a small block, lanes and warps stand side by side, and the whole repeats.

They are what loads and stores of global memory want: neighbours in memory in one thread, then in neighbouring lanes.
Neighbours: `linear` has the maps; `gpu.coalesce` chooses the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stator.tile.layouts.linear import LANES, Base, Layout, LayoutError, axis_bits


class Filling:
    """Hands out the bits of a shape's axes from the lowest one on; bits that an axis has no more are zeros."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.left = [axis_bits(shape, axis) for axis in range(len(shape))]

    def take(self, counts: Sequence[int], order: Sequence[int]) -> tuple[Base, ...]:
        """So many elements along each axis, axes in an order, as bases."""
        found = []
        for axis in order:
            for _ in range(counts[axis].bit_length() - 1):
                found.append(self.left[axis].pop(0) if self.left[axis] else (0,) * len(self.shape))
        return tuple(found)

    def rest(self, order: Sequence[int]) -> tuple[Base, ...]:
        """All bits that are left."""
        return tuple([base for axis in order for base in self.left[axis]])


def blocked(
    shape: Sequence[int], per_thread: Sequence[int], lanes: Sequence[int], warps: Sequence[int], order: Sequence[int]
) -> Layout:
    """A thread has a block of `per_thread` elements, a warp so many lanes along each axis, a program so many warps.

    All numbers are powers of two; `order` has the axes, the one first along which elements, lanes and warps are
    neighbours first. What is greater than that repeats in registers; what is smaller is held more than once.
    """
    if sorted(order) != list(range(len(shape))) or not len(per_thread) == len(lanes) == len(warps) == len(shape):
        raise LayoutError(f"a block, lanes, warps and an order have a number for each axis of {tuple(shape)}")
    if any(count < 1 or count & (count - 1) for count in (*per_thread, *lanes, *warps)) or prod(lanes) != 1 << LANES:
        raise LayoutError(f"{tuple(lanes)} is no way to lay out {1 << LANES} lanes, or a number is no power of two")
    filling = Filling(shape)
    register = tuple([base for base in filling.take(per_thread, order) if any(base)])
    lane, warp = filling.take(lanes, order), filling.take(warps, order)
    return Layout(tuple(shape), register + filling.rest(order), lane, warp)


def spread(shape: Sequence[int], per_thread: Sequence[int], order: Sequence[int], warps: int) -> Layout:
    """A blocked layout whose lanes and warps go along the first axes of the order as far as these reach."""
    lanes, groups = [1] * len(shape), [1] * len(shape)
    for counts, left in ((lanes, 1 << LANES), (groups, warps)):
        for axis in order:
            room = max(shape[axis] // (per_thread[axis] * lanes[axis] * groups[axis]), 1)
            counts[axis] = min(room, left)
            left //= counts[axis]
        counts[order[-1]] *= left  # held more than once
    return blocked(shape, per_thread, lanes, groups, order)
