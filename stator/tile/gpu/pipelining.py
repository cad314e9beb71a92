"""Loads in loops that feed products become copies to shared memory that are some turns ahead of the products.

                                            for the first turns:  async_copy(slot j, p of turn j); async_commit()
    for_(…)                                 for_(…)
        x = load(p)                  →          async_wait(stages - 2); barrier()
        y = convert_layout(x, L)                y = local_load(the slot of this turn, L)
        acc = mma(y, …, acc)                    acc = mma(y, …, acc)
                                                async_copy(a slot, p of stages - 1 turns ahead); async_commit()

There are as many slots as stages: a turn fills the slot that was read in the turn before, so the one barrier that the
arrived copies want anyway is enough. Copies come last, where the products are on their way already. Where an address
depends on what the loop loads, or the loop writes to global memory, which its loads may read, loads stay as they are.
Neighbours: `assign` has made the loop, `barriers` counts the barrier. Copies of whole tiles by a unit of their own
(TMA) would be another way to fill a slot here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stator.tile.gpu.flow import Flow
from stator.tile.gpu.operators import GPU_OPERATORS
from stator.tile.gpu.operators import builder as gpu_builder
from stator.tile.gpu.scratch import layout_of
from stator.tile.gpu.simplify import is_free, replace_operands
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import effects_of
from stator.tile.ir.types import I1, I32, DType, Pointer, Type
from stator.tile.layouts.memory import Shared, swizzled

#: Bytes that a copy moves at once: at least four.
COPY_BYTES = 4
_PRODUCTS = frozenset(["mma", "dot"])
#: Operators beside elementwise ones through which a load may come to a product.
_PASSING = frozenset(["convert_layout", "permute", "reshape"])


@dataclass
class _Copied:
    """A load that becomes copies: its slots, and the operations in the body that its operands are made of."""

    load: Operation
    shared: Shared
    slots: Value | None = None
    reads: list[Operation] = field(default_factory=list)


def pipeline_loops(function: Function, num_stages: int) -> None:
    """Does that to every loop that has a product in its own body; a loop's attribute `stages` counts more."""
    _blocks(function, function.body, num_stages)


def _blocks(function: Function, block: Block, num_stages: int) -> None:
    for operation in list(block.operations):
        for region in operation.regions:
            _blocks(function, region, num_stages)
        stages = operation.attrs.get("stages") or num_stages
        if operation.op == "for" and stages > 1:
            flow = Flow(function)
            if _may_run_ahead(operation, flow, stages):
                loop = _Loop(function, block, operation, flow, stages)
                if loop.copied:
                    loop.rewrite()


def _may_run_ahead(loop: Operation, flow: Flow, stages: int) -> bool:
    """Whether loads may be done turns ahead: nothing in the loop writes what they may read, and it counts upwards."""
    (body,) = loop.regions
    if not any(operation.op in _PRODUCTS for operation in body.operations):
        return False
    for operation in body.walk():
        if operation.op in ("local_alloc", "local_store"):
            continue
        if effects_of(operation, GPU_OPERATORS) & {"writes", "syncs", "prints"}:
            return False
    step = flow.made.get(loop.operands[2])
    counter = loop.operands[0].type.element
    assert isinstance(counter, DType)
    known = step is not None and step.op == "constant"
    return known and step is not None and 0 < step.attrs["value"] * (stages - 1) <= counter.high


class _Loop:
    """A loop and what is to be copied in it."""

    def __init__(self, function: Function, block: Block, loop: Operation, flow: Flow, stages: int) -> None:
        self.function, self.block, self.loop, self.flow, self.stages = function, block, loop, flow, stages
        (self.body,) = loop.regions
        self.place = {id(operation): i for i, operation in enumerate(self.body.operations)}
        self.copied = [copied for o in self.body.operations if (copied := self.candidate(o)) is not None]
        self.needed = self.slice([v for copied in self.copied for v in copied.load.operands]) or ([], [])

    # ---- what is copied

    def candidate(self, load: Operation) -> _Copied | None:
        if load.op != "load" or load.result.type.is_scalar or load.attrs["volatile"]:
            return None
        dtype = load.result.type.element
        if not isinstance(dtype, DType) or load.attrs["vector"] * dtype.itemsize < COPY_BYTES:
            return None
        if len(load.operands) == 3 and not self.is_zero(load.operands[2]):
            return None
        if not self.feeds_products(load.result) or self.slice(load.operands) is None:
            return None
        return _Copied(load, buffer_layout(load.result.type))

    def is_zero(self, value: Value) -> bool:
        made = self.flow.made.get(value)
        while made is not None and made.op in ("splat", "broadcast"):
            made = self.flow.made.get(made.operands[0])
        return made is not None and made.op == "constant" and made.attrs["value"] == 0

    def feeds_products(self, value: Value) -> bool:
        """Whether a product takes it, be it in another layout, dtype or order."""
        stack, seen = [value], {value}
        while stack:
            current = stack.pop()
            for use in self.flow.uses.get(current, ()):
                passes = GPU_OPERATORS[use.op].elementwise or use.op in _PASSING
                fresh = list(use.results) if passes else [use.operands[0]] if use.op == "local_store" else []
                if use.op in _PRODUCTS and current in use.operands[:2]:
                    return True
                stack += [v for v in fresh if v not in seen]
                seen.update(fresh)
        return False

    def slice(self, values: Sequence[Value]) -> tuple[list[Operation], list[int]] | None:
        """The body's operations that values are made of, in order, and the carried values that they need, by position.

        None where one of them is not free to be computed turns ahead.
        """
        (body, last) = self.body, self.body.operations[-1]
        operations: dict[int, Operation] = {}
        carried: set[int] = set()
        stack, seen = list(values), set(values)
        arguments = {arg: i for i, arg in enumerate(body.args[1:])}
        while stack:
            value = stack.pop()
            made = self.flow.made.get(value)
            fresh: Sequence[Value] = ()
            if value in arguments:
                carried.add(arguments[value])
                fresh = [last.operands[arguments[value]]]
            elif made is not None and id(made) in self.place:
                if not is_free(made, GPU_OPERATORS):
                    return None
                operations[self.place[id(made)]] = made
                fresh = made.operands
            stack += [v for v in fresh if v not in seen]
            seen.update(fresh)
        return [operations[number] for number in sorted(operations)], sorted(carried)

    # ---- the new loop

    def rewrite(self) -> None:
        builder = gpu_builder(self.function, Block())
        counter, made = self.loop.operands[0].type, Block()
        distance = self.number(builder, self.stages - 1, counter, self.loop)
        ahead = self.prologue(builder, counter)
        zero, first = [self.number(builder, slot, Type(I32), self.loop) for slot in (0, self.stages - 1)]
        extra = [builder.value(value.type, value.name) for value in ahead]
        reading, filling = builder.value(Type(I32), "reading"), builder.value(Type(I32), "filling")
        made.args = (*self.body.args, *extra, reading, filling)
        with builder.inside(made):
            builder.emit("async_wait", [], {"pending": self.stages - 2})
            builder.emit("barrier")
            self.read(builder, reading)
            (reach,) = builder.emit("mul", [distance, self.loop.operands[2]])
            turn, goes_on = self.later(builder, self.body.args[0], reach)
            following = self.fill(builder, turn, extra, filling, goes_on)
            yields = self.body.operations[-1].operands
            steps = [self.stepped(builder, slot) for slot in (reading, filling)]
            builder.emit("yield", [*yields, *following, *steps])
        self.replace(builder, made, [*ahead, zero, first])

    @staticmethod
    def number(builder: IRBuilder, value: int, type_: Type, like: Operation) -> Value:
        return builder.emit("constant", [], {"value": value, "type": type_}, location=like.location)[0]

    def prologue(self, builder: IRBuilder, counter: Type) -> list[Value]:
        """Buffers, and the copies of the first turns; the carried values behind them."""
        for copied in self.copied:
            type_ = copied.load.result.type
            assert isinstance(type_.element, DType)
            slots = Type(Pointer(type_.element, "shared"), (self.stages, *type_.shape), copied.shared)
            (copied.slots,) = builder.emit("local_alloc", [], {"type": slots}, location=copied.load.location)
        lower, upper, step = self.loop.operands[:3]
        values = [self.loop.operands[3 + position] for position in self.needed[1]]
        turn, (goes_on,) = lower, builder.emit("lt", [lower, upper])
        for number in range(self.stages - 1):
            slot = self.number(builder, number, Type(I32), self.loop)
            values = self.fill(builder, turn, values, slot, goes_on)
            before = goes_on
            turn, goes_on = self.later(builder, turn, step)
            (goes_on,) = builder.emit("and", [before, goes_on])
        return values

    def later(self, builder: IRBuilder, turn: Value, reach: Value) -> tuple[Value, Value]:
        """A later turn's number, and whether there is such a turn: a number that has wrapped around is none."""
        (number,) = builder.emit("add", [turn, reach])
        (grows,) = builder.emit("lt", [turn, number])
        (inside,) = builder.emit("lt", [number, self.loop.operands[1]])
        return number, builder.emit("and", [grows, inside])[0]

    def fill(
        self, builder: IRBuilder, turn: Value, values: Sequence[Value], slot: Value, goes_on: Value
    ) -> list[Value]:
        """The copies of a turn as one group, of nothing if there is no such turn; gives what it carries to the next.

        Masks say whether there is one, and no branch: so the back end may mix copies with products.
        """
        names = {self.body.args[0]: turn}
        names |= {self.body.args[1 + position]: value for position, value in zip(self.needed[1], values, strict=True)}
        last = self.body.operations[-1]
        self.clone(builder, self.needed[0], names)
        for copied in self.copied:
            self.copy(builder, copied, names, slot, goes_on)
        builder.emit("async_commit")
        ends = [last.operands[position] for position in self.needed[1]]
        return [names.get(value, value) for value in ends]

    def clone(self, builder: IRBuilder, operations: Sequence[Operation], names: dict[Value, Value]) -> None:
        for operation in operations:
            operands = [names.get(operand, operand) for operand in operation.operands]
            made = builder.emit(operation.op, operands, operation.attrs, location=operation.location)
            names.update(zip(operation.results, made, strict=True))

    def copy(self, builder: IRBuilder, copied: _Copied, names: dict[Value, Value], slot: Value, goes_on: Value) -> None:
        load = copied.load
        assert copied.slots is not None
        (place,) = builder.emit("local_index", [copied.slots, slot])
        pointers, *masks = [names.get(operand, operand) for operand in load.operands[:2]]
        shape, layout = pointers.type.shape, layout_of(pointers.type)
        (mask,) = builder.emit("splat", [goes_on], {"shape": shape, "layout": layout}, location=load.location)
        if masks:
            (mask,) = builder.emit("and", [masks[0], mask], location=load.location)
        attrs = {name: load.attrs[name] for name in ("cache", "eviction", "vector")}
        builder.emit("async_copy", [place, pointers, mask], attrs, location=load.location)

    def read(self, builder: IRBuilder, slot: Value) -> None:
        """The body's operations, with loads from the slot of the turn in place of those from global memory."""
        loads = {id(copied.load): copied for copied in self.copied}
        gone: set[int] = set()
        names: dict[Value, Value] = {}
        for operation in self.body.operations[:-1]:
            if id(operation) in gone:
                continue
            copied = loads.get(id(operation))
            if copied is None:
                operation.operands = tuple([names.get(operand, operand) for operand in operation.operands])
                for region in operation.regions:
                    replace_operands(region, names)
                builder.block.operations.append(operation)
                continue
            assert copied.slots is not None
            (place,) = builder.emit("local_index", [copied.slots, slot])
            for use in self.flow.uses.get(operation.result, ()):
                if use.op == "convert_layout" and id(use) in self.place:
                    names[use.result] = self.loaded(builder, place, use.attrs["layout"], use)
                    gone.add(id(use))
                elif use.op == "local_store" and id(use) in self.place:
                    names[use.operands[0]] = place
                    gone.add(id(use))
                elif operation.result not in names:
                    names[operation.result] = self.loaded(builder, place, layout_of(operation.result.type), operation)
        last = self.body.operations[-1]
        last.operands = tuple([names.get(operand, operand) for operand in last.operands])

    @staticmethod
    def loaded(builder: IRBuilder, place: Value, layout: object, like: Operation) -> Value:
        (made,) = builder.emit("local_load", [place], {"layout": layout}, location=like.location)
        builder.rename(made, like.result.name)
        return made

    def stepped(self, builder: IRBuilder, slot: Value) -> Value:
        """The next slot; behind the last one comes the first."""
        one, count = [self.number(builder, value, Type(I32), self.loop) for value in (1, self.stages)]
        zero = self.number(builder, 0, Type(I32), self.loop)
        (following,) = builder.emit("add", [slot, one])
        (wraps,) = builder.emit("eq", [following, count])
        assert wraps.type == Type(I1)
        return builder.emit("select", [wraps, zero, following])[0]

    def replace(self, before: IRBuilder, body: Block, extra: Sequence[Value]) -> None:
        """Puts the new loop in the place of the old one."""
        starts = [*self.loop.operands, *extra]
        results = before.emit("for", starts, self.loop.attrs, [body], self.loop.location)
        made = before.block.operations[-1]
        before.emit("async_wait", [], {"pending": 0})
        before.emit("barrier")
        made.results = (*self.loop.results, *results[len(self.loop.results) :])
        where = self.block.operations.index(self.loop)
        self.block.operations[where : where + 1] = before.block.operations


def buffer_layout(type_: Type) -> Shared:
    """Rows along the axis that threads read from global memory, with vectors of 16 bytes exchanged by the row.

    Eight rows of 16 bytes below one another then lie in all banks: what `ldmatrix` wants.
    """
    layout = layout_of(type_)
    first = layout.register[0] if layout.register else (0,) * layout.rank
    inner = next((axis for axis, step in enumerate(first) if step), layout.rank - 1)
    order = (inner, *[axis for axis in reversed(range(layout.rank)) if axis != inner])
    itemsize = type_.element.itemsize
    vector = max(16 // itemsize, 1)
    row = type_.shape[inner] * itemsize
    per_phase = max(128 // row, 1)
    return swizzled(type_.shape, vector, per_phase, max(8 // per_phase, 1), order)
