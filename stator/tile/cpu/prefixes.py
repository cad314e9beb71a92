"""Masks that hold for a first part of each row: `offsets < n`, and what holds where several such do.

If one holds for the last element of a row it holds for all, so that rows are whole but for the last ones.
Neighbours: `nests` writes rows that are whole without masks.
"""

from __future__ import annotations

from collections.abc import Mapping

from stator.tile.analysis.axes import Axes
from stator.tile.cpu.plan import Nest, Plan
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.types import I1


def prefixes(nest: Nest, plan: Plan, axes: Mapping[Value, Axes]) -> list[Value]:
    """The masks of a nest's steps that hold for all of a row if they hold for its last element."""
    found: dict[Value, None] = {}
    for step in nest.steps:
        for operand in step.operands if isinstance(step, Operation) else ():
            mask = operand.type.element == I1 and operand.type.shape == nest.shape
            if mask and _is_prefix(operand, plan, axes):
                found[operand] = None
    return list(found)


def _is_prefix(value: Value, plan: Plan, axes: Mapping[Value, Axes]) -> bool:
    operation = plan.inline.get(value)
    if operation is None or value not in axes:
        return False
    size, operands = value.type.shape[-1], operation.operands
    match operation.op:
        case "and":
            return all(_is_prefix(operand, plan, axes) for operand in operands)
        case "broadcast":
            (source,) = operands
            return (source.type.shape[-1] == size and _is_prefix(source, plan, axes)) or source.type.shape[-1] == 1
        case "expand_dims":
            last = operation.attrs["axis"] == len(value.type.shape) - 1
            return last or (not operands[0].type.is_scalar and _is_prefix(operands[0], plan, axes))
        case "lt" | "le" | "gt" | "ge":
            rising, bound = operands if operation.op in ("lt", "le") else operands[::-1]
            inline = all(operand in plan.inline and operand in axes for operand in operands)
            return inline and axes[rising].contiguity[-1] >= size and axes[bound].constancy[-1] >= size
    return False
