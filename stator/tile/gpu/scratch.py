"""How much shared memory an operation works in beside buffers: the bytes from its attribute `scratch` on.

What it has there nobody needs before or behind it, so operations may share it; a barrier lies between two that do.
Within the operation, between its writes and its reads, the back end has its own. `allocate` places it.
Neighbours: `stator.tile.layouts.conversion` and `reduction` have the plans that this counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from stator.tile.ir.core import Operation
from stator.tile.ir.types import Type
from stator.tile.layouts.conversion import ThroughShared, plan_conversion
from stator.tile.layouts.linear import Layout
from stator.tile.layouts.reduction import partial_elements, plan_reduction

ALIGNMENT = 16


def layout_of(type_: Type) -> Layout:
    """The layout of a tile of tile IR with layouts that has been verified."""
    return cast(Layout, type_.layout)


def aligned(size: int) -> int:
    """A number of bytes, rounded up so that what comes after it is aligned."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _conversion(operation: Operation) -> int:
    given, itemsize = operation.operands[0].type, operation.operands[0].type.element.itemsize
    plan = plan_conversion(layout_of(given), operation.attrs["layout"], itemsize)
    return plan.shared.size * itemsize if isinstance(plan, ThroughShared) else 0


def _reduction(operation: Operation) -> int:
    """The parts of each operand, one operand behind the other."""
    axis, layout = operation.attrs["axis"], layout_of(operation.operands[0].type)
    elements = partial_elements(layout, axis, plan_reduction(layout, axis))
    return sum([aligned(elements * operand.type.element.itemsize) for operand in operation.operands])


def _gather(operation: Operation) -> int:
    """All of the source, row-major."""
    source = operation.operands[0].type
    return source.numel * source.element.itemsize


def _histogram(operation: Operation) -> int:
    return operation.result.type.numel * 4


def _atomic(operation: Operation) -> int:
    """The results, row-major, where several threads hold the same: one of them asks."""
    result = operation.result.type
    held_once = not result.is_scalar and not any(layout_of(result).free_bits)
    return 0 if held_once else result.numel * result.element.itemsize


_BYTES: dict[str, Callable[[Operation], int]] = {
    "convert_layout": _conversion, "reduce": _reduction, "gather": _gather, "histogram": _histogram,
    "atomic_rmw": _atomic, "atomic_cas": _atomic,
}  # fmt: skip


def scratch_bytes(operation: Operation) -> int:
    """How many bytes an operation works in; 0 for most."""
    count = _BYTES.get(operation.op)
    return aligned(count(operation)) if count is not None else 0
