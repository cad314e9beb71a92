"""Products of bfloat16 by instructions for pairs of terms: which kernels are such, and in what blocks they go.

A block of rows and columns is multiplied at once into scratch, as sums in float32, and what is done with them is a loop
over the block. The factor of its columns lies in pairs (`base/pairs.py`), the other one term beside term.
Neighbours: `decisions` asks, `nest` writes the loops, `ir.Multiply` is the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stator.base import pairs
from stator.kernel.facts import Axes
from stator.loop.collision import scatters
from stator.loop.expr import Expr, scans
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.loop.space import loops

#: Rows and columns of a block: two tiles each way, whose sums fill half of the eight that a core has.
ROWS, COLUMNS = 32, 32
_FAR = 4


@dataclass(frozen=True, slots=True)
class Factors:
    """The loads of one product: of its rows, and of its columns."""

    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Pairs:
    """Products along the same axes: each sum with its factors."""

    rows: Axis
    columns: Axis
    terms: Axis
    sums: Mapping[Expr, Factors]

    @property
    def keeps_columns(self) -> bool:
        """Whether a thread goes through all rows before it goes on to other columns, whose factor is far larger.

        Two threads with AMX, weights out of the nearest caches: 98 x 2048 x 512 take 132 µs so (183), 128 x 768 x 768
        take 74 (110); but 392 x 256 x 1024 take 226 (120).
        """
        assert isinstance(self.rows.size, int) and isinstance(self.columns.size, int)
        return self.columns.size > _FAR * self.rows.size


def pairs_of(kernel: Kernel, deps: Mapping[Expr, Axes]) -> Pairs | None:
    """What a kernel is as such products: nothing but sums over one axis, and what is done with each at its place."""
    sums = [node for node in kernel.nodes if node.op == "reduce"]
    reduced = [axis for axis in kernel.reduce_axes if loops(axis)]
    if not sums or kernel.levels != 1 or len(reduced) != 1 or scans(kernel.nodes) or kernel.outer_numel == 0:
        return None
    if any(store.space != "outer" or store.mode != "store" or scatters(store) for store in kernel.stores):
        return None
    (terms,) = reduced
    known = [axis for axis in kernel.axes if loops(axis) and type(axis.size) is int]
    for columns in known if type(terms.size) is int else ():
        found = {node: factors for node in sums if (factors := _factors(node, columns, terms)) is not None}
        if len(found) == len(sums):
            lefts = [factors.left for factors in found.values()]
            others = [axis for axis in known if axis is not columns and _are_rows(lefts, axis)]
            alone = not any(columns in deps[load] for load in lefts)
            return Pairs(others[-1], columns, terms, found) if others and alone else None
    return None


def _factors(node: Expr, columns: Axis, terms: Axis) -> Factors | None:
    """Of a sum of products of two numbers of bfloat16, of which one lies in pairs.

    Rows of two terms lie as pairs do, but end where they do: which factor is the weight could not be told.
    """
    if node.attr != "sum" or node.dtype != "f32" or node.args[0].op != "mul":
        return None
    loads = [arg.args[0] for arg in node.args[0].args if arg.op == "cast" and arg.args[0].op == "load"]
    if len(loads) != 2 or any(load.dtype != "bf16" or load.attr[1].has_indirect for load in loads):
        return None
    assert type(terms.size) is int
    if terms.size <= pairs.PAIR:
        return None
    wanted = pairs.place(columns.index, terms.index, terms.size)
    left, right = loads if loads[1].attr[1] is wanted else loads[::-1]
    together = right.attr[1] is wanted and left.attr[1].stride(terms) == 1
    return Factors(left, right) if together else None


def _are_rows(loads: Iterable[Expr], axis: Axis) -> bool:
    """Whether these go a known way at each step along an axis."""
    steps = [load.attr[1].stride(axis) for load in loads]
    return all(type(step) is int and step > 0 for step in steps)
