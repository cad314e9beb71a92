"""Operators that show tiles in other shapes: the layout of the result for that of an operand, and the other way round.

Going back is exact, for an element of the result has one element that it comes from; going on, tiles that grow may do
so in many ways, and none is said here.
Neighbours: `preferences` goes on, `assign` back; `rules` checks what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from stator.tile.ir.core import Operation
from stator.tile.layouts.linear import Layout

#: Operators that show tiles in other shapes, or make them of scalars: they are computed where they are needed.
VIEWS = frozenset("constant arange splat broadcast expand_dims reshape permute join split cat".split())

Mapped: TypeAlias = Callable[[Operation, Layout], Layout | None]


def _half(layout: Layout) -> Layout:
    """Of the tiles that are put one behind the other along axis 0: the upper half as the lower one."""
    shape = (layout.shape[0] // 2, *layout.shape[1:])
    return layout.map(shape, lambda base: (base[0] & (shape[0] - 1), *base[1:]), drop=True)


def _grown(operation: Operation, layout: Layout) -> Layout:
    before = operation.operands[0].type.shape
    return layout.squash([axis for axis, size in enumerate(before) if size != layout.shape[axis]])


def _inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


#: An operator → the layout of its result for that of its operands.
FORWARD: Mapping[str, Mapped] = {
    "expand_dims": lambda operation, layout: layout.expand_dims(operation.attrs["axis"]),
    "permute": lambda operation, layout: layout.transpose(operation.attrs["order"]),
    "reshape": lambda operation, layout: layout.reshape(operation.result.type.shape),
    "join": lambda operation, layout: layout.join(),
    "cat": lambda operation, layout: layout.cat(),
}
#: An operator → the layout of its operands for that of its result. None for scalars.
BACKWARD: Mapping[str, Mapped] = {
    "broadcast": _grown,
    "expand_dims": lambda operation, layout: layout.squeeze(operation.attrs["axis"]),
    "permute": lambda operation, layout: layout.transpose(_inverse(operation.attrs["order"])),
    "reshape": lambda operation, layout: layout.reshape(operation.operands[0].type.shape),
    "join": lambda operation, layout: layout.slice(layout.rank - 1),
    "split": lambda operation, layout: layout.join(),
    "cat": lambda operation, layout: _half(layout),
}
