"""Strategies: how a kernel becomes a function that a machine runs well, as a few steps each.

`serial` is for any machine. `vectors` is for one with vectors, by the numbers that `decisions` chose: pointwise kernels
and columns have an outer axis as lanes, rows a reduce axis. Neighbours: `nest` makes loops, `rewrite` changes them.
"""

from __future__ import annotations

from dataclasses import replace

from stator.kernel.decisions import LoopPlan, guarded, pieces_of
from stator.kernel.ir import Function, Piece
from stator.kernel.nest import Order, nest
from stator.kernel.rewrite import flush_sums, reduce_in_parts, vectorise
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.sizes import Extent


def serial(kernel: Kernel, name: str) -> Function:
    """Loops over its axes, one element at a time; long sums in parts, to be as accurate as eager's."""
    return reduce_in_parts(nest(kernel, name, Order.of(kernel)))


def vectors(plan: LoopPlan, name: str) -> Function:
    """Lanes innermost, threads outermost."""
    kernel = plan.kernel
    function = nest(kernel, name, _order(plan))
    if plan.vector is not None:
        function = vectorise(function, plan.vector, plan.lanes, plan.unroll)
    return replace(flush_sums(function), named=tuple(plan.named), threads=plan.threads)


def _order(plan: LoopPlan) -> Order:
    """The grid, loops that one thread runs in order, and what is swept."""
    grid, swept, tile = plan.grid_axes, plan.swept, plan.tile
    groups = [(axis,) for axis in plan.serial]
    pieces: dict[Axis, Piece] = {}

    def in_pieces(axis: Axis, step: Extent) -> None:
        nonlocal grid
        pieces[axis] = Piece(Axis(f"{axis.name}_piece", pieces_of(axis.size, step)), step)
        grid = (*grid, pieces[axis].axis)

    if tile is not None:
        in_pieces(tile.axis, tile.columns)
        groups.append((tile.axis,))
    if swept is not None and swept in plan.kernel.axes:
        groups.append((swept,))
        if plan.pieces != 1 or tile is not None:
            in_pieces(swept, plan.chunk)
    return Order(
        (grid, *groups), plan.loops, pieces, swept, tile, plan.staged,
        narrow=plan.narrow, guarded=guarded(plan), deps=plan.deps, lanes=plan.vector,
    )  # fmt: skip
