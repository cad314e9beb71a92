"""Which bytes of shared memory operations touch, once `allocate` has placed buffers and scratch.

Neighbours: `allocate` places them, `barriers` and the pipeline ask here what an operation does to which bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stator.tile.gpu.operators import buffer_bytes
from stator.tile.gpu.scratch import layout_of, scratch_bytes
from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.types import Type
from stator.tile.layouts.memory import Shared, rows_of_banks

#: Operators that give a part or another view of a buffer.
PARTS = frozenset(["local_index", "local_permute"])
#: Operators that touch buffers → what they do to their operands' buffers, by position.
READS: Mapping[str, tuple[int, ...]] = {"local_load": (0,), "dot": (0, 1), "wgmma": (0, 1)}
WRITES: Mapping[str, tuple[int, ...]] = {"local_store": (0,)}
COPIES: Mapping[str, tuple[int, ...]] = {"async_copy": (0,)}


class Bytes(NamedTuple):
    """From a byte to one before another."""

    start: int
    end: int

    def overlaps(self, other: Bytes) -> bool:
        return self.start < other.end and other.start < self.end


def owners(function: Function) -> dict[Value, Operation]:
    """Every buffer, and every part of one, with the `local_alloc` that it is of."""
    found: dict[Value, Operation] = {}
    for operation in function.body.walk():
        if operation.op == "local_alloc":
            found[operation.result] = operation
        elif operation.op in PARTS:
            found[operation.result] = found[operation.operands[0]]
    return found


def bytes_of(alloc: Operation) -> Bytes:
    """Where a placed buffer lies, all slots of it."""
    start = alloc.attrs["offset"]
    return Bytes(start, start + buffer_bytes(alloc.result.type))


def scratch_of(operation: Operation) -> Bytes | None:
    """Where an operation works, if it needs memory."""
    size = scratch_bytes(operation)
    return Bytes(operation.attrs["scratch"], operation.attrs["scratch"] + size) if size else None


def buffer_layout(type_: Type) -> Shared:
    """Of a buffer for a tile: rows along the axis that threads have neighbours on, as tensor cores read them best."""
    layout = layout_of(type_)
    first = layout.register[0] if layout.register else (0,) * layout.rank
    inner = next((axis for axis, step in enumerate(first) if step), layout.rank - 1)
    order = (inner, *[axis for axis in reversed(range(layout.rank)) if axis != inner])
    return rows_of_banks(type_.shape, type_.element.itemsize, order)
