"""Products of copied operands go along their inner axis in parts, each loaded while the one before it is multiplied.

                                            async_wait(n); barrier; x = local_load(first slot, part 0)
    for_(…)                                 for_(…, x)
        async_wait(n); barrier                  y = local_load(slot, part 1)
        x = local_load(slot)         →          acc = mma(x, …, acc)
        acc = mma(x, …, acc)                    async_copy(a slot, …)
        async_copy(a slot, …)                   async_wait(n); barrier
                                                x = local_load(the next turn's slot, part 0)
                                                acc = mma(y, …, acc)

So tensor cores have products while threads wait and load what the next turn begins with. A part is what an instruction
takes of the inner axis. Copies follow the first part, so that the barrier comes early; the loads of a slot are before
the barrier that stands before its next copies. Loops with several products, or with more than computations behind one,
stay as they are. Neighbours: `pipelining` has made the loop; `nvidia.words` carries the parts through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stator.tile.gpu.buffers import PARTS
from stator.tile.gpu.flow import Flow
from stator.tile.gpu.instructions import instruction
from stator.tile.gpu.operators import GPU_OPERATORS
from stator.tile.gpu.operators import builder as gpu_builder
from stator.tile.gpu.scratch import layout_of
from stator.tile.gpu.simplify import is_free
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.layouts.linear import Layout
from stator.tile.layouts.mma import dot_operand


@dataclass(frozen=True)
class _Operand:
    """An operand of the product: its load, the `permute` behind that if there is one, the axis of its parts, their
    layout, and how many there are."""

    load: Operation
    permute: Operation | None
    axis: int
    layout: Layout
    parts: int

    def start(self, part: int) -> tuple[int, ...]:
        rank = self.layout.rank
        return tuple([part * self.layout.shape[axis] if axis == self.axis % rank else 0 for axis in range(rank)])


def prefetch_products(function: Function) -> None:
    """Does that to every loop that copies ahead."""
    _blocks(function, function.body)


def _blocks(function: Function, block: Block) -> None:
    for operation in list(block.operations):
        for region in operation.regions:
            _blocks(function, region)
        if operation.op == "for":
            found = _candidate(function, operation)
            if found is not None:
                found.rewrite(block)


def _candidate(function: Function, loop: Operation) -> _Loop | None:
    """A loop whose only product takes what lies in slots, and gives what only values are made of."""
    (body,) = loop.regions
    waits = [operation.op for operation in body.operations[:2]] == ["async_wait", "barrier"]
    products = [operation for operation in body.walk() if operation.op in ("mma", "dot")]
    if not waits or len(products) != 1 or products[0] not in body.operations or products[0].op != "mma":
        return None
    flow = Flow(function)
    operands = [_operand(loop, products[0], index, flow) for index in (0, 1)]
    after = _after(body, products[0])
    if after is None or operands[0] is None or operands[1] is None or operands[0].parts < 2:
        return None
    return _Loop(function, loop, products[0], (operands[0], operands[1]), after, flow)


def _operand(loop: Operation, product: Operation, index: int, flow: Flow) -> _Operand | None:
    """An operand that is loaded in the loop from the slot of a turn, for the product alone."""
    value, (body,) = product.operands[index], loop.regions
    load, permute = flow.made.get(value), None
    if load is not None and load.op == "permute" and len(flow.uses[value]) == 1:
        permute, load = load, flow.made.get(load.operands[0])
    if load is None or load.op != "local_load" or load not in body.operations or len(flow.uses[load.result]) != 1:
        return None
    place = flow.made.get(load.operands[0])
    while place is not None and place.op == "local_permute":
        place = flow.made.get(place.operands[0])
    if place is None or place.op != "local_index" or place.operands[1] not in body.args[1:]:
        return None
    left, right, sums = [operand.type.element for operand in product.operands]
    found = instruction(left, right, sums, product.attrs["precision"])
    assert found is not None
    layout = dot_operand(layout_of(product.result.type), index, found.inner, found.width)
    axis = -1 if index == 0 else -2
    return _Operand(load, permute, axis, layout, value.type.shape[axis] // found.inner)


def _after(body: Block, product: Operation) -> list[Operation] | None:
    """The operations that depend on the product, but the terminator; None where one of them does more than compute."""
    values, found = set(product.results), []
    for operation in body.operations[body.operations.index(product) + 1 : -1]:
        if values & {operand for inner in (operation, *_inner(operation)) for operand in inner.operands}:
            if not is_free(operation, GPU_OPERATORS):
                return None
            values.update(operation.results)
            found.append(operation)
    return found


def _inner(operation: Operation) -> list[Operation]:
    return [inner for region in operation.regions for inner in region.walk()]


@dataclass
class _Loop:
    """A loop that is rewritten."""

    function: Function
    loop: Operation
    product: Operation
    operands: tuple[_Operand, _Operand]
    after: Sequence[Operation]
    flow: Flow

    def rewrite(self, block: Block) -> None:
        (body,) = self.loop.regions
        builder, made = gpu_builder(self.function, Block()), Block()
        self.wait(builder, body)
        starts = dict(zip(body.args[1:], self.loop.operands[3:], strict=True))
        first = self.loaded(builder, 0, starts)
        heads = [builder.value(value.type, value.name) for value in first]
        made.args = (*body.args, *heads)
        with builder.inside(made):
            self.turn(builder, body, heads)
        results = builder.emit("for", [*self.loop.operands, *first], self.loop.attrs, [made], self.loop.location)
        builder.block.operations[-1].results = (*self.loop.results, *results[len(self.loop.results) :])
        where = block.operations.index(self.loop)
        block.operations[where : where + 1] = builder.block.operations

    def turn(self, builder: IRBuilder, body: Block, heads: Sequence[Value]) -> None:
        """The operations of the new body; what does not depend on the product stands behind its first part."""
        last, made = body.operations[-1], builder.block.operations
        place = body.operations.index(self.product)
        gone = [each for operand in self.operands for each in (operand.load, operand.permute)]
        made += [operation for operation in body.operations[2:place] if operation not in gone]
        now = {arg: arg for arg in body.args[1:]}
        parts, sums = list(heads), self.product.operands[2]
        for part in range(1, self.operands[0].parts):
            fresh = self.loaded(builder, part, now)
            sums, parts = self.multiplied(builder, parts, sums), fresh
            if part == 1:
                made += [operation for operation in body.operations[place + 1 : -1] if operation not in self.after]
        self.wait(builder, body)
        following = dict(zip(body.args[1:], last.operands, strict=True))
        fresh = self.loaded(builder, 0, following)
        self.multiplied(builder, parts, sums)
        made[-1].results = self.product.results
        made += self.after
        builder.emit("yield", [*last.operands, *fresh])

    @staticmethod
    def wait(builder: IRBuilder, body: Block) -> None:
        builder.emit("async_wait", [], body.operations[0].attrs)
        builder.emit("barrier")

    def loaded(self, builder: IRBuilder, part: int, slots: dict[Value, Value]) -> list[Value]:
        """A part of both operands, of the slot of a turn whose carried values these are.

        The right one comes first: all of it is multiplied with the first rows of the left one.
        """
        right, left = [self.load(builder, operand, part, slots) for operand in reversed(self.operands)]
        return [left, right]

    def load(self, builder: IRBuilder, operand: _Operand, part: int, slots: dict[Value, Value]) -> Value:
        attrs = {"layout": operand.layout, "start": operand.start(part)}
        place = self.placed(builder, operand.load.operands[0], slots)
        if operand.permute is not None:
            order, location = operand.permute.attrs["order"], operand.permute.location
            (place,) = builder.emit("local_permute", [place], {"order": order}, location=location)
        (made,) = builder.emit("local_load", [place], attrs, location=operand.load.location)
        builder.rename(made, operand.load.result.name)
        return made

    def placed(self, builder: IRBuilder, value: Value, slots: dict[Value, Value]) -> Value:
        """The same part of a buffer, of another slot."""
        made = self.flow.made[value]
        if made.op not in PARTS:
            return value
        inner = self.placed(builder, made.operands[0], slots)
        rest = [slots.get(operand, operand) for operand in made.operands[1:]]
        return builder.emit(made.op, [inner, *rest], made.attrs, location=made.location)[0]

    def multiplied(self, builder: IRBuilder, parts: Sequence[Value], sums: Value) -> Value:
        attrs, location = self.product.attrs, self.product.location
        return builder.emit("mma", [*parts, sums], attrs, location=location)[0]
