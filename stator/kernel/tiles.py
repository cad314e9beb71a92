"""Tiles: how a pointwise kernel loads what lies contiguous along another axis than its lanes.

Loaded at an address for each lane, each cache line would be fetched as often as it has elements. Instead the loops
over both axes go in blocks, and what a block loads is turned over at once into a buffer whose rows lie along the lanes
by the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stator.base.dtypes import ITEMSIZE
from stator.base.records import dataclass
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.loop.space import loops
from stator.sizes import Extent, hint

#: Elements of a tile along the lanes; a multiple of the lanes of any vector.
WIDTH = 64
#: Bytes that the widest of its loads has along its other axis: several cache lines, as each row is another page.
DEPTH = 256
#: Bytes of a cache line.
LINE = 64
#: The shortest axes worth it.
SHORTEST = 8
#: How many lines are sure to stay in the cache until the next point of the grid reads the next element of each.
KEPT_LINES = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """The axis along which its loads are contiguous, how much of it one tile has, and the buffer of each load.

    A row of a buffer has `width` elements along the lanes.
    """

    axis: Axis
    columns: int
    buffers: Mapping[Expr, str]
    width: int = WIDTH


def choose(kernel: Kernel, vector: Axis | None, lane_stride: Callable[[Expr], Extent | None]) -> Tile | None:
    """The tile that most loads ask for; `lane_stride` is by how much a lane moves a load, None where that varies."""
    if vector is None or kernel.reduce_axes or vector not in kernel.axes or hint(vector.size) < SHORTEST:
        return None
    masked = set(postorder([node.args[1] for node in kernel.nodes if node.op == "masked"]))
    found: dict[Axis, list[Expr]] = {}
    for node in kernel.nodes:
        if node.op != "load" or node in masked or lane_stride(node) in (None, 0, 1, -1, 2):
            continue
        axis = _across(node, vector, kernel)
        if axis is not None and not _walks_along(axis, vector, kernel, LINE // ITEMSIZE[node.dtype]):
            found.setdefault(axis, []).append(node)
    if not found:
        return None
    axis = max(found, key=lambda axis: len(found[axis]))
    columns = DEPTH // max(ITEMSIZE[load.dtype] for load in found[axis])
    return Tile(axis, columns, {load: f"s{i}" for i, load in enumerate(found[axis])})


def _walks_along(axis: Axis, vector: Axis, kernel: Kernel, line: int) -> bool:
    """Whether loads at an address for each lane walk along few lines, and are faster: images with channels last."""
    innermost = [other for other in kernel.axes if other is not vector and loops(other)][-1]
    return axis is innermost and hint(vector.size) <= KEPT_LINES and hint(axis.size) >= line


def _across(load: Expr, vector: Axis, kernel: Kernel) -> Axis | None:
    """The axis along which a load is contiguous, if both it and the lanes move it by constant steps."""
    index = load.attr[1]
    if index.has_indirect:
        return None
    for axis in kernel.axes:
        if axis is vector or not loops(axis) or hint(axis.size) < SHORTEST or index.coefficient(axis) != 1:
            continue
        rest = index - axis.index - vector.index * index.coefficient(vector)
        if not rest.axes() & {axis, vector}:
            return axis
    return None
