"""Products of bfloat16 by instructions for pairs of terms: which kernels are such, and in what blocks they go.

A block of rows and columns is multiplied at once into scratch, as sums in float32, and what is done with them is a loop
over the block. The factor of its columns lies in pairs (`base/pairs.py`), the other one term beside term.
Neighbours: `loop/paired.py` finds factors, `decisions` asks, `nest` writes the loops, `ir.Multiply` is the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stator.base.device import Device
from stator.base.tiling import Product
from stator.kernel.facts import Axes
from stator.loop.collision import scatters
from stator.loop.expr import Expr, scans
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.loop.paired import Factors, factors_of
from stator.loop.space import loops


@dataclass(frozen=True, slots=True)
class Pairs:
    """Products along the same axes: each sum with its factors."""

    rows: Axis
    columns: Axis
    terms: Axis
    sums: Mapping[Expr, Factors]
    by_columns: bool  # whether a thread goes through all rows before it goes on to other columns


def pairs_of(kernel: Kernel, deps: Mapping[Expr, Axes], device: Device) -> Pairs | None:
    """What a kernel is as such products: nothing but sums over one axis, and what is done with each at its place."""
    sums = [node for node in kernel.nodes if node.op == "reduce"]
    reduced = [axis for axis in kernel.reduce_axes if loops(axis)]
    if not sums or kernel.levels != 1 or len(reduced) != 1 or scans(kernel.nodes) or kernel.outer_numel == 0:
        return None
    if any(store.space != "outer" or store.mode != "store" or scatters(store) for store in kernel.stores):
        return None
    (terms,) = reduced
    known = [axis for axis in kernel.axes if loops(axis) and type(axis.size) is int]
    for columns in known:
        found = {node: factors for node in sums if (factors := factors_of(node, columns, terms)) is not None}
        if len(found) == len(sums):
            lefts = [factors.left for factors in found.values()]
            others = [axis for axis in known if axis is not columns and _are_rows(lefts, axis)]
            alone = not any(columns in deps[load] for load in lefts)
            return _made(others[-1], columns, terms, found, device) if others and alone else None
    return None


def _made(rows: Axis, columns: Axis, terms: Axis, sums: Mapping[Expr, Factors], device: Device) -> Pairs:
    """In the order in which a thread moves least."""
    m, n, k = rows.size, columns.size, terms.size
    assert isinstance(m, int) and isinstance(n, int) and isinstance(k, int)
    return Pairs(rows, columns, terms, sums, Product(m, n, k).by_columns(device))


def _are_rows(loads: Iterable[Expr], axis: Axis) -> bool:
    """Whether these go a known way at each step along an axis."""
    steps = [load.attr[1].stride(axis) for load in loads]
    return all(type(step) is int and step > 0 for step in steps)
