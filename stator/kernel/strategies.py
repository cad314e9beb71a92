"""Strategies: how a kernel becomes a function that a machine runs well, as a few steps each.

`serial` is for any machine. `vectors` is for one with vectors, by the numbers that `decisions` chose: pointwise kernels
and columns have an outer axis as lanes, rows a reduce axis. `blocks` is for a GPU: tiles of lanes along outer axes and
the reduce axes, by the numbers of `blocks.choose`. Neighbours: `nest` makes loops, `rewrite` changes them.
"""

from __future__ import annotations

from dataclasses import replace

from stator.base.tiling import COLUMNS, ROWS
from stator.kernel.blocks import BlockPlan
from stator.kernel.decisions import LoopPlan, guarded, pieces_of
from stator.kernel.facts import INT32
from stator.kernel.interchange import interchange
from stator.kernel.ir import Function, Piece
from stator.kernel.matmul import Matmul
from stator.kernel.nest import Order, nest
from stator.kernel.online import from_first, online_softmax, welford
from stator.kernel.pairs import Pairs
from stator.kernel.rewrite import (
    columns,
    contract,
    flush_sums,
    jam,
    merge,
    share,
    stream,
    strip,
    sum_rows,
    vectorise,
)
from stator.kernel.windows import proved, shared
from stator.loop.expr import Expr
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.sizes import Extent


def serial(kernel: Kernel, name: str) -> Function:
    """Loops over its axes, one element at a time; long sums are flushed, to be as accurate as eager's."""
    return flush_sums(nest(kernel, name, Order.of(kernel)))


def vectors(plan: LoopPlan, name: str) -> Function:
    """Lanes innermost, threads outermost."""
    kernel = plan.kernel
    function = from_first(nest(kernel, name, _order(plan)))
    if plan.block is not None:
        function = strip(contract(function), plan.block.inner, plan.block.strips)
    for axis, count in plan.jammed:
        function = jam(function, axis, count, beside=plan.windows is not None)
    if plan.windows is not None:
        function = shared(proved(function))
    if plan.vector is not None:
        function = vectorise(function, plan.vector, plan.lanes, plan.unroll)
    if plan.interchanged and plan.vector is not None:
        function = interchange(function, plan.vector)
    elif plan.block is None:
        function = flush_sums(function)
    function = stream(columns(function), plan.streamed)
    return replace(function, named=tuple(plan.named), threads=plan.threads)


def blocks(plan: BlockPlan, name: str) -> Function:
    """Each range of outer points, and of points of the reduce axes, in one row: blocks of all of them are lanes.

    A range of which a block takes one point has no lanes, unless there would be none at all.
    """
    kernel = plan.kernel
    outer = tuple([points.axes for points in plan.outer])
    order = Order(outer, kernel.reduce_axes, staged=plan.staged, blocks=True, narrow=_positions(kernel))
    function = nest(kernel, name, order)
    for points in plan.outer:
        function = merge(function, points.axes, points.name)
    function = merge(function, kernel.reduce_axes, "r")
    function = welford(online_softmax(function)) if plan.online else function
    row = Axis("r", kernel.reduce_numel)
    if plan.turns:
        (points,) = plan.outer
        function = sum_rows(function, Axis(points.name, points.size), plan.turns, row)
    alone = None if kernel.reduce_axes else max(plan.outer, key=lambda points: (points.count, points.name))
    for points in plan.outer:
        axis = Axis(points.name, points.size)
        if points.count > 1 or points is alone:
            function = vectorise(share(function, axis, points.count), axis, points.count, 1)
    return replace(vectorise(function, row, plan.r, 1), threads=plan.threads)


def _positions(kernel: Kernel) -> frozenset[Expr]:
    """The places of extremes, where 32 bits hold any."""
    short = type(kernel.reduce_numel) is int and kernel.reduce_numel < INT32
    return frozenset([n for n in kernel.nodes if short and n.op == "reduce" and n.attr.startswith("arg")])


def tiles(plan: Matmul, name: str) -> Function:
    """A product: rows in one row of lanes, columns in a second one, terms in a third one; batches in a loop around."""
    kernel, product = plan.kernel, plan.product
    outer = (*product.batch, *product.rows, *product.columns)
    function = nest(kernel, name, Order((outer,), product.terms, blocks=True))
    for axes, letter in zip((product.batch, product.rows, product.columns, product.terms), "bmnk", strict=True):
        function = merge(function, axes, letter)
    return replace(function, threads=plan.threads)


def _order(plan: LoopPlan) -> Order:
    """The grid, loops that one thread runs in order, and what is swept."""
    grid, swept, tile = plan.grid_axes, plan.swept, plan.tile
    if plan.pairs is not None:
        return _pairs_order(plan, plan.pairs)
    groups = [(axis,) for axis in (*plan.serial, plan.inner) if axis is not None]
    pieces: dict[Axis, Piece] = {}

    def in_pieces(axis: Axis, step: Extent) -> None:
        nonlocal grid
        pieces[axis] = Piece(Axis(f"{axis.name}_piece", pieces_of(axis.size, step)), step)
        grid = (*grid, pieces[axis].axis)

    if tile is not None:
        in_pieces(tile.axis, tile.columns)
        groups += [(tile.axis,)] if tile.axis in plan.kernel.axes else []
    if swept is not None and swept in plan.kernel.axes:
        groups.append((swept,))
        if plan.pieces != 1 or tile is not None:
            in_pieces(swept, plan.chunk)
    return Order(
        (grid, *groups), plan.loops, pieces, swept, tile, plan.staged, plan.ahead,
        narrow=plan.narrow, guarded=guarded(plan), deps=plan.deps, lanes=plan.vector,
    )  # fmt: skip


def _pairs_order(plan: LoopPlan, pairs: Pairs) -> Order:
    """Blocks of rows by columns in the grid; in one of them a loop over rows for each vector of columns."""
    steps = ((pairs.rows, ROWS), (pairs.columns, COLUMNS))
    pieces = {axis: Piece(Axis(f"{axis.name}_piece", pieces_of(axis.size, step)), step) for axis, step in steps}
    outer = [piece.axis for piece in pieces.values()]
    grid = (*plan.grid_axes, *(reversed(outer) if pairs.by_columns else outer))
    return Order(
        (grid, (pairs.columns,), (pairs.rows,)), (), pieces, pairs.columns, pairs=pairs,
        narrow=plan.narrow, guarded=guarded(plan), deps=plan.deps, lanes=plan.vector,
    )  # fmt: skip
