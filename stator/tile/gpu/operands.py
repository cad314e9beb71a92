"""Operands of tensor cores that no copy brings: through a buffer from which `ldmatrix` or a warp group loads them.

    y = convert_layout(x, L)                 b = local_alloc(); local_store(b, x)
    acc = mma(y, …, acc)              →      y = local_load(b, L)
                                             acc = mma(y, …, acc)

A conversion would put as few elements side by side as both layouts have; the buffer is as the threads of `x` write it
best, and matrices are turned over as they are loaded. Several operands wait together at the one barrier between. Tiles
that are to be in a buffer (`local_tile`) are stored there.
Neighbours: `pipelining` has made copies of what loops load; `barriers` puts the barrier.
"""

from __future__ import annotations

from stator.tile.gpu.buffers import buffer_layout
from stator.tile.gpu.flow import Flow
from stator.tile.gpu.operators import builder as gpu_builder
from stator.tile.gpu.scratch import layout_of
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Function, Location, Operation, Value
from stator.tile.ir.types import DType, Pointer, Type
from stator.tile.layouts.access import plan_matrices
from stator.tile.layouts.conversion import ThroughShared, plan_conversion
from stator.tile.layouts.memory import Shared


def buffer_operands(function: Function) -> None:
    """Does that to every conversion to an operand's layout that would go through shared memory, and to tiles there."""
    _blocks(function, function.body, Flow(function))


def _blocks(function: Function, block: Block, flow: Flow) -> None:
    builder, operations = gpu_builder(function, Block()), list[Operation]()
    for operation in block.operations:
        for region in operation.regions:
            _blocks(function, region, flow)
        if operation.op == "local_tile":
            (value,) = operation.operands
            place = _stored(builder, value, operation.attrs["layout"], operation.location)
            alloc, store = builder.block.operations
            assert alloc.result is place
            alloc.results, store.operands = operation.results, (operation.result, value)
        elif _is_operand(operation, flow):
            _buffered(builder, operation)
        else:
            builder.block.operations.append(operation)
        operations += builder.block.operations
        builder.block.operations.clear()
    block.operations[:] = operations


def _is_operand(operation: Operation, flow: Flow) -> bool:
    """Whether it is such a conversion, and `ldmatrix` loads what it gives."""
    if operation.op != "convert_layout" or not isinstance(operation.result.type.element, DType):
        return False
    uses = flow.uses.get(operation.result, [])
    if not uses or any(use.op != "mma" or operation.result not in use.operands[:2] for use in uses):
        return False
    given, target = operation.operands[0].type, operation.attrs["layout"]
    itemsize = given.element.itemsize
    if not isinstance(plan_conversion(layout_of(given), target, itemsize), ThroughShared):
        return False
    return plan_matrices(target, buffer_layout(given), itemsize) is not None


def _buffered(builder: IRBuilder, operation: Operation) -> None:
    (value,) = operation.operands
    place = _stored(builder, value, buffer_layout(value.type), operation.location)
    builder.emit("local_load", [place], {"layout": operation.attrs["layout"]}, location=operation.location)
    builder.block.operations[-1].results = operation.results


def _stored(builder: IRBuilder, value: Value, shared: Shared, location: Location | None) -> Value:
    """A buffer, to which a tile is written."""
    type_ = value.type
    assert isinstance(type_.element, DType)
    content = Type(Pointer(type_.element, "shared"), type_.shape, shared)
    (place,) = builder.emit("local_alloc", [], {"type": content}, location=location)
    builder.emit("local_store", [place, value], location=location)
    return place
