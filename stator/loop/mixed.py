"""Reductions down columns that the kernel of a reduction along rows can make, as it reads the same memory.

A split reduction down columns has parts, each the sum of some rows. A program that goes through these rows one after
the other, each kept in registers for reductions along it, has all that the part is made of:
    part[p, j] = sum(body(c*p + i, j) for i < c)   -->   part[row // c, j] sums body(row, j), at each point of the rows
So what the gradients of a norm's input and of its weights are made of is read once.
Neighbours: `split` makes parts for it, `fusion` joins the kernels, `kernel/strategies.py` has the loop over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from stator.base.device import Device
from stator.loop.collision import scatters
from stator.loop.deps import NestFacts, along_rows
from stator.loop.expr import postorder
from stator.loop.index import Axis, FloorDiv, Index, Mod
from stator.loop.nest import Nest, Program
from stator.loop.space import AxisMap, Space, is_linear, maps
from stator.sizes import Extent

#: What is read by a reduction along rows, or made of its results at each point of the rows: the buffer, how many rows,
#: and how long they are.
Rows: TypeAlias = frozenset[tuple[str, Extent, Extent]]
#: Candidates for a map that are tried, at most.
_MANY = 8
#: Rows of a part at least: of fewer, parts are as large as what they are made of.
_ROWS = 4
#: Elements of a row from which on there are half as many parts.
_WIDE = 2048


def rows_of(program: Program, device: Device) -> Rows:
    """What the reductions of a program read along rows that a kernel keeps in registers, and what is made with them."""
    nests = (
        [node for node in program.nodes if isinstance(node, Nest) and not scatters(node)] if device.row_parts else []
    )
    reads = [[expr.attr for expr in postorder([nest.value]) if expr.op == "load"] for nest in nests]
    found: set[tuple[str, Extent, Extent]] = set()
    known: dict[str, tuple[Extent, Extent]] = {}  # what is read along rows, and what is made of that
    for nest, loads in zip(nests, reads, strict=True):
        rows, length = (prod([axis.size for axis in axes]) for axes in (nest.axes, nest.reduce_axes))
        if nest.reduce_axes and is_kept(length, device) and along_rows([at for _, at in loads], nest.reduce_axes):
            names = [name for name, index in loads if not index.axes().isdisjoint(nest.reduce_axes)]
            found |= {(name, rows, length) for name in names}
            known |= dict.fromkeys([nest.buffer.name, *names], (rows, length))
    for nest, loads in zip(nests, reads, strict=True):
        size = next((known[name] for name, _ in loads if name in known), None) if not nest.reduce_axes else None
        points = prod([axis.size for axis in nest.axes])
        if size is not None and points in (size[0], prod(size)):
            known[nest.buffer.name] = size
            found |= {(nest.buffer.name, *size)} if points == prod(size) else set()
    return frozenset(found)


def is_kept(length: Extent, device: Device) -> bool:
    """Whether a program keeps a row in registers, and all of its threads have something of it."""
    return type(length) is int and device.warp * device.thread_points <= length <= device.row_elements


def pieces_by_rows(nest: Nest, names: Sequence[str], rows: Rows, device: Device) -> int:
    """Into how many pieces to split a reduction down columns that goes with one along the same rows; 0 if none does."""
    columns, length = (prod([axis.size for axis in axes]) for axes in (nest.axes, nest.reduce_axes))
    if type(length) is not int or type(columns) is not int:
        return 0
    if not any((name, length, columns) in rows for name in names):
        return 0
    most = device.row_parts // 2 if columns > _WIDE else device.row_parts  # programs with longer rows have more threads
    found = next((n for n in range(min(most, length // _ROWS), 0, -1) if length % n == 0), 0)
    return found if found > 1 and found * 2 >= device.cores else 0


def by_rows(nest: Nest) -> Nest | None:
    """The parts of a split sum down columns as a nest over all rows and columns, which sums in memory."""
    if len(nest.reduce_axes) != 1 or not nest.axes or nest.mode != "store":
        return None
    (chunk,), (*columns, piece) = nest.reduce_axes, nest.axes
    if nest.value.op != "reduce" or nest.value.attr != "sum" or nest.value.level != 1:
        return None
    if type(piece.size) is not int or type(chunk.size) is not int:
        return None
    row = Axis("row", piece.size * chunk.size)
    value = nest.value.args[0].substitute({piece: row.index // chunk.size, chunk: row.index % chunk.size})
    if any(_divides(expr.attr[1], row) for expr in postorder([value]) if expr.op == "load"):
        return None
    index = nest.index.substitute({piece: row.index // chunk.size})
    return replace(nest, axes=(row, *columns), reduce_axes=(), value=value, index=index, mode="sum")


def _divides(index: Index, row: Axis) -> bool:
    return any(isinstance(atom, FloorDiv | Mod) and row in atom.inner.axes() for atom, _ in index.terms)


def pieces_of(nest: Nest) -> int:
    """How many parts there are of a split sum down columns."""
    size = nest.axes[-1].size
    assert type(size) is int, "only fixed sizes are split by rows"
    return size


def map_onto(facts: NestFacts, space: Space, reads: Mapping[str, list[Index]]) -> AxisMap | None:
    """How a nest over all rows and columns runs in the space of a reduction along rows, whose accesses to memory are
    `reads`: some read is the same then.
    """
    both = [(facts.reads[name], reads[name]) for name in facts.reads if name in reads]
    shared = [(ours, theirs) for some, others in both for ours in some for theirs in others]
    for found in maps(Space(facts.nest.axes, ()), space, shared[:_MANY]):
        if is_linear(found) and any(ours.substitute(found) is theirs for ours, theirs in shared):
            return found
    return None
