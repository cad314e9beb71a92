"""Layouts for accesses to global memory: neighbours in memory belong to one thread, then to neighbouring lanes.

How many elements a thread takes at once follows from what is known of the pointers: how many are contiguous, and what
divides their addresses. Accesses of one shape and order share the layout of the widest, so that tiles that meet need no
conversion. Neighbours: `stator.tile.analysis.axes` has the facts; `preferences` and `assign` ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from stator.tile.analysis.axes import Axes
from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.types import Pointer
from stator.tile.layouts.blocked import spread
from stator.tile.layouts.linear import LANES, Layout

#: Bytes of the widest access of a thread.
ACCESS_BYTES = 16
_POINTERS = {"load": 0, "store": 0, "atomic_rmw": 0, "atomic_cas": 0}
#: Operators → the position of the mask among the operands.
_MASKS = {"load": 1, "store": 2, "atomic_rmw": 2}


def default_layout(shape: tuple[int, ...], warps: int) -> Layout:
    """Of a tile that nothing ties to a layout: four neighbours of the last axis a thread, if there are so many."""
    order = tuple(reversed(range(len(shape))))
    each = [1] * len(shape)
    each[-1] = min(4, shape[-1], max(prod(shape) // (warps << LANES), 1))
    return spread(shape, each, order, warps)


class Coalescing:
    """The layouts of a function's accesses."""

    def __init__(self, function: Function, axes: Mapping[Value, Axes], warps: int) -> None:
        self.axes, self.warps = axes, warps
        self._widths: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for operation in _accesses(function):
            pointer = operation.operands[0]
            key = pointer.type.shape, self.order(pointer)
            self._widths[key] = max(self._widths.get(key, 1), self._width(operation))

    def order(self, pointer: Value) -> tuple[int, ...]:
        """The axes by how many elements are contiguous along each; the last axis first among equals."""
        contiguity = self.axes[pointer].contiguity
        return tuple(sorted(range(len(contiguity)), key=lambda axis: (-contiguity[axis], -axis)))

    def _width(self, operation: Operation) -> int:
        """Elements of an access that are one in memory and have one mask."""
        pointer = operation.operands[0]
        element = pointer.type.element
        assert isinstance(element, Pointer)
        axis, itemsize, known = self.order(pointer)[0], element.to.itemsize, self.axes[pointer]
        width = min(known.contiguity[axis], max(known.divisibility[axis] // itemsize, 1), ACCESS_BYTES // itemsize)
        mask = _MASKS.get(operation.op, len(operation.operands))
        if mask < len(operation.operands):
            width = min(width, self.axes[operation.operands[mask]].constancy[axis])
        return max(width, 1)

    def layout(self, operation: Operation) -> Layout:
        """Of an access to a tile of pointers; what writes has one vector of a thread beside those of its neighbours.

        So a warp writes whole sectors of memory at once, where a load finds the rest of them in the nearest cache.
        """
        pointer = operation.operands[0]
        shape, order = pointer.type.shape, self.order(pointer)
        share = max(prod(shape) // (self.warps << LANES), 1)
        each = [1] * len(shape)
        width = self._widths[shape, order]
        if operation.op != "load":
            element = pointer.type.element
            assert isinstance(element, Pointer)
            width = min(width, max(ACCESS_BYTES // element.to.itemsize, 1))
        each[order[0]] = min(width, share, shape[order[0]])
        return spread(shape, each, order, self.warps)

    def vector(self, operation: Operation, layout: Layout) -> int:
        """How many neighbouring registers of a layout are one access."""
        axis, width = self.order(operation.operands[0])[0], 1
        limit = self._width(operation)
        for base in layout.register:
            if width * 2 > limit or base[axis] != width or sum(base) != width:
                break
            width *= 2
        return width


def _accesses(function: Function) -> Iterator[Operation]:
    return (o for o in function.body.walk() if o.op in _POINTERS and not o.operands[0].type.is_scalar)
