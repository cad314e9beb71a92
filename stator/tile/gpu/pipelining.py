"""Loads in loops become copies to shared memory, some turns ahead: those that feed products, and all of a loop that has
none and says itself how many stages it has.
                                            for the first turns:  async_copy(slot j, p of turn j); async_commit()
    for_(…)                                 for_(…)
        x = load(p)                  →          async_wait(stages - 2); barrier()
        y = convert_layout(x, L)                y = local_load(the slot of this turn, L)
        acc = mma(y, …, acc)                    acc = mma(y, …, acc)
                                                async_copy(a slot, p of stages - 1 turns ahead); async_commit()

There are as many slots as stages: a turn fills the slot that was read in the turn before, so the one barrier that the
arrived copies want anyway is enough. Copies come last, where the products are on their way. Products of warp groups go
on while threads copy; where a loop only adds them up, in the next turn as well: their slot is filled behind another
barrier, which all reach once the turn before has been computed. Scalars wait in registers, one for each turn. Loads
stay where their address depends on what the loop loads, or the loop writes to their argument, or who knows where.
Neighbours: `assign` has made the loop, `barriers` counts the barrier. Other ways to fill a slot (TMA) would be here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from stator.tile.gpu.buffers import PARTS, buffer_layout
from stator.tile.gpu.flow import Flow
from stator.tile.gpu.operators import GPU_OPERATORS
from stator.tile.gpu.operators import builder as gpu_builder
from stator.tile.gpu.scratch import layout_of
from stator.tile.gpu.simplify import is_free, replace_operands, turns_of
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import effects_of
from stator.tile.ir.types import I1, I32, DType, Pointer, Type
from stator.tile.layouts.memory import Shared

#: Bytes that a copy moves at once: at least four.
COPY_BYTES = 4
_PRODUCTS = frozenset(["mma", "wgmma", "dot"])
#: Operators beside elementwise ones through which a load may come to a product.
_PASSING = frozenset(["convert_layout", "permute", "reshape", "local_tile", *PARTS])
_WRITES = frozenset(["store", "atomic_rmw", "atomic_cas"])
#: Operators whose result points into what their first operand points into.
_POINTING = frozenset("addptr splat broadcast reshape expand_dims permute convert_layout".split())
#: Without products, bytes of shared memory from which on fewer turns are under way, and what is too much for two.
_MUCH, _TOO_MUCH = 48 << 10, 96 << 10
#: What a turn carries on behind the copies of a later one, and scalars of that.
_Filled: TypeAlias = tuple[list[Value], list[Value]]


@dataclass
class _Copied:
    """A load that becomes copies: its slots, and the operations in the body that its operands are made of."""

    load: Operation
    shared: Shared
    slots: Value | None = None
    reads: list[Operation] = field(default_factory=list)


@dataclass(frozen=True)
class _InFlight:
    """The wait for a product of warp groups that goes on in the next turn; the number of the carried value it gives."""

    wait: Operation
    place: int


def pipeline_loops(function: Function, num_stages: int) -> None:
    """Does that to every loop; its attribute `stages` counts more than those of the launch."""
    _blocks(function, function.body, num_stages)


def _blocks(function: Function, block: Block, num_stages: int) -> None:
    for operation in list(block.operations):
        for region in operation.regions:
            _blocks(function, region, num_stages)
        if operation.op != "for":
            continue
        stages = operation.attrs.get("stages") or (num_stages if _has_product(operation) else 1)
        flow = Flow(function)
        turns = turns_of(operation, flow.made)
        stages = stages if turns is None else min(stages, turns + 1)
        if stages > 1 and _may_run_ahead(operation, flow, stages):
            loop = _Loop(function, block, operation, flow, stages)
            if loop.copied:
                loop.rewrite()


def _has_product(loop: Operation) -> bool:
    return any(operation.op in _PRODUCTS for operation in loop.regions[0].operations)


def _may_run_ahead(loop: Operation, flow: Flow, stages: int) -> bool:
    """Whether loads may be done turns ahead: the loop does nothing that they would have to wait for, and counts up."""
    (body,) = loop.regions
    for operation in body.walk():
        if operation.op in ("local_alloc", "local_store", *_WRITES):
            continue
        if effects_of(operation, GPU_OPERATORS) & {"writes", "syncs", "prints"}:
            return False
    step = flow.made.get(loop.operands[2])
    counter = loop.operands[0].type.element
    assert isinstance(counter, DType)
    known = step is not None and step.op == "constant"
    return known and step is not None and 0 < step.attrs["value"] * (stages - 1) <= counter.high


def _arguments(flow: Flow, pointer: Value) -> frozenset[Value] | None:
    """The arguments of the kernel that pointers may come from, or None where that is not seen."""
    found, stack, seen = set[Value](), [pointer], {pointer}
    while stack:
        value = stack.pop()
        made = flow.made.get(value)
        if value in flow.given:
            fresh = flow.given[value]
        elif made is None:
            found.add(value)
            continue
        elif made.op in _POINTING:
            fresh = [made.operands[0]]
        else:
            return None
        stack += [v for v in fresh if v not in seen]
        seen.update(fresh)
    return frozenset(found)


class _Loop:
    """A loop and what is to be copied in it."""

    def __init__(self, function: Function, block: Block, loop: Operation, flow: Flow, stages: int) -> None:
        self.function, self.block, self.loop, self.flow, self.stages = function, block, loop, flow, stages
        (self.body,) = loop.regions
        self.place = {id(operation): i for i, operation in enumerate(self.body.operations)}
        self.multiplies = _has_product(loop)
        writes = [o for o in self.body.walk() if o.op in _WRITES]
        self.written = [_arguments(flow, o.operands[0]) for o in writes]
        self.copied = [copied for o in self.body.operations if (copied := self.candidate(o)) is not None]
        self.scalars = [] if self.multiplies else [o for o in self.body.operations if self.is_early(o)]
        if not self.multiplies:
            self.fit()
        self.flying = self.product_in_flight()
        ahead = [*[copied.load for copied in self.copied], *self.scalars]
        self.needed = self.slice([v for load in ahead for v in load.operands]) or ([], [])

    # ---- what is copied

    def fit(self) -> None:
        """Fewer turns are under way, or none, where all are too many for shared memory."""
        each = sum([copied.load.result.type.numel * copied.load.result.type.element.itemsize for copied in self.copied])
        while self.stages > 2 and self.stages * each > _MUCH:
            self.stages -= 1
        if self.stages * each > _TOO_MUCH:
            self.copied = []

    def is_free_of_writes(self, load: Operation) -> bool:
        """Whether nothing in the loop writes to what is loaded."""
        if not self.written:
            return True
        read = _arguments(self.flow, load.operands[0])
        return read is not None and all(written is not None and not read & written for written in self.written)

    def is_early(self, load: Operation) -> bool:
        """Whether it is the load of a scalar whose address is known turns ahead."""
        if load.op != "load" or not load.result.type.is_scalar or load.attrs["volatile"]:
            return False
        return self.is_free_of_writes(load) and self.slice(load.operands) is not None

    def candidate(self, load: Operation) -> _Copied | None:
        if load.op != "load" or load.result.type.is_scalar or load.attrs["volatile"]:
            return None
        if not self.is_free_of_writes(load):
            return None
        dtype = load.result.type.element
        if not isinstance(dtype, DType) or load.attrs["vector"] * dtype.itemsize < COPY_BYTES:
            return None
        if len(load.operands) == 3 and not self.is_zero(load.operands[2]):
            return None
        if self.multiplies and not self.feeds_products(load.result):
            return None
        needed = self.slice(load.operands)
        if needed is None or not (self.multiplies or any(needed) or self.body.args[0] in load.operands):
            return None  # what is the same in each turn is in the nearest cache from the first on
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

    def product_in_flight(self) -> _InFlight | None:
        """The one product of warp groups, if the loop does nothing with its sums but to add the next ones to them.

        So they stay in the registers that they are in. What it reads lies in slots, or is the same in all turns.
        """
        products = [operation for operation in self.body.walk() if operation.op == "wgmma"]
        if len(products) != 1 or products[0] not in self.body.operations:
            return None
        (product,), ends = products, self.body.operations[-1]
        (wait,) = self.flow.uses[product.result]
        places = [i for i, value in enumerate(ends.operands) if value is wait.result]
        if self.flow.uses.get(wait.result) != [ends] or len(places) != 1:
            return None
        arg = self.body.args[1 + places[0]]
        alone = arg is product.operands[2] and self.flow.uses[arg] == [product]
        return _InFlight(wait, places[0]) if alone and all(map(self.is_copied, product.operands[:2])) else None

    def is_copied(self, operand: Value) -> bool:
        """Whether an operand lies in the slot of a turn, or is the same in all turns."""
        made = self.flow.made.get(operand)
        while made is not None and id(made) in self.place and made.op in PARTS:
            made = self.flow.made.get(made.operands[0])
        if made is None or id(made) not in self.place:
            return isinstance(operand.type.layout, Shared)
        loads = [copied for copied in self.copied if copied.load.result in made.operands]
        return made.op == "local_tile" and any(copied.shared == made.attrs["layout"] for copied in loads)

    # ---- the new loop

    def rewrite(self) -> None:
        builder = gpu_builder(self.function, Block())
        counter, made = self.loop.operands[0].type, Block()
        distance = self.number(builder, self.stages - 1, counter, self.loop)
        ahead, early = self.prologue(builder)
        zero, first = [self.number(builder, slot, Type(I32), self.loop) for slot in (0, self.stages - 1)]
        extra = [builder.value(value.type, value.name) for value in ahead]
        waiting = [[builder.value(value.type, value.name) for value in turn] for turn in early]
        reading, filling = builder.value(Type(I32), "reading"), builder.value(Type(I32), "filling")
        made.args = (*self.body.args, *extra, *chain(*waiting), reading, filling)
        with builder.inside(made):
            builder.emit("async_wait", [], {"pending": self.stages - 2})
            if any(operation.op == "wgmma" for operation in self.body.operations):
                builder.emit("proxy_fence")
            builder.emit("barrier")

            def fill() -> _Filled:
                (reach,) = builder.emit("mul", [distance, self.loop.operands[2]])
                turn, goes_on = self.later(builder, self.body.args[0], reach)
                return self.fill(builder, turn, extra, filling, goes_on)

            following, loaded = self.read(builder, reading, waiting[0], fill)
            yields = self.body.operations[-1].operands
            steps = [self.stepped(builder, slot) for slot in (reading, filling)]
            builder.emit("yield", [*yields, *following, *chain(*waiting[1:]), *loaded, *steps])
        self.replace(builder, made, [*ahead, *chain(*early), zero, first])

    @staticmethod
    def number(builder: IRBuilder, value: int, type_: Type, like: Operation) -> Value:
        return builder.emit("constant", [], {"value": value, "type": type_}, location=like.location)[0]

    def prologue(self, builder: IRBuilder) -> tuple[list[Value], list[list[Value]]]:
        """Buffers, and the copies of the first turns; the carried values behind them, and the scalars of each turn."""
        for copied in self.copied:
            type_ = copied.load.result.type
            assert isinstance(type_.element, DType)
            slots = Type(Pointer(type_.element, "shared"), (self.stages, *type_.shape), copied.shared)
            (copied.slots,) = builder.emit("local_alloc", [], {"type": slots}, location=copied.load.location)
        lower, upper, step = self.loop.operands[:3]
        values = [self.loop.operands[3 + position] for position in self.needed[1]]
        early = []
        turn, (goes_on,) = lower, builder.emit("lt", [lower, upper])
        for number in range(self.stages - 1):
            slot = self.number(builder, number, Type(I32), self.loop)
            values, loaded = self.fill(builder, turn, values, slot, goes_on)
            early.append(loaded)
            before = goes_on
            turn, goes_on = self.later(builder, turn, step)
            (goes_on,) = builder.emit("and", [before, goes_on])
        return values, early

    def later(self, builder: IRBuilder, turn: Value, reach: Value) -> tuple[Value, Value]:
        """A later turn's number, and whether there is such a turn: a number that has wrapped around is none."""
        (number,) = builder.emit("add", [turn, reach])
        (grows,) = builder.emit("lt", [turn, number])
        (inside,) = builder.emit("lt", [number, self.loop.operands[1]])
        return number, builder.emit("and", [grows, inside])[0]

    def fill(
        self, builder: IRBuilder, turn: Value, values: Sequence[Value], slot: Value, goes_on: Value
    ) -> tuple[list[Value], list[Value]]:
        """The copies of a turn as one group, of nothing if there is no such turn; what it carries on, and its scalars.

        Masks say whether there is one, and no branch: so the back end may mix copies with products.
        """
        names = {self.body.args[0]: turn}
        names |= {self.body.args[1 + position]: value for position, value in zip(self.needed[1], values, strict=True)}
        last = self.body.operations[-1]
        self.clone(builder, self.needed[0], names)
        for copied in self.copied:
            self.copy(builder, copied, names, slot, goes_on)
        builder.emit("async_commit")
        loaded = [self.load(builder, load, names, goes_on) for load in self.scalars]
        ends = [last.operands[position] for position in self.needed[1]]
        return [names.get(value, value) for value in ends], loaded

    def clone(self, builder: IRBuilder, operations: Sequence[Operation], names: dict[Value, Value]) -> None:
        for operation in operations:
            operands = [names.get(operand, operand) for operand in operation.operands]
            made = builder.emit(operation.op, operands, operation.attrs, location=operation.location)
            names.update(zip(operation.results, made, strict=True))

    @staticmethod
    def load(builder: IRBuilder, load: Operation, names: dict[Value, Value], goes_on: Value) -> Value:
        """A scalar of a turn, if there is such a turn."""
        pointer, *rest = [names.get(operand, operand) for operand in load.operands]
        if rest:
            (goes_on,) = builder.emit("and", [rest[0], goes_on], location=load.location)
        return builder.emit("load", [pointer, goes_on, *rest[1:]], load.attrs, location=load.location)[0]

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

    def read(self, builder: IRBuilder, slot: Value, early: Sequence[Value], fill: Callable[[], _Filled]) -> _Filled:
        """The body's operations, with what the turn finds in its slot and among scalars in place of loads.

        The copies of a later turn are at the end, or begin as soon as warp groups multiply.
        """
        names = {load.result: value for load, value in zip(self.scalars, early, strict=True)}
        loads = {id(copied.load): copied for copied in self.copied}
        gone, filled = {id(load) for load in self.scalars}, None
        for operation in self.body.operations[:-1]:
            if id(operation) in gone:
                continue
            if id(operation) in loads:
                gone |= self.found(builder, loads[id(operation)], slot, names)
                continue
            if operation.op == "wgmma_wait" and filled is None and self.flying is None:
                filled = fill()
            operation.operands = tuple([names.get(operand, operand) for operand in operation.operands])
            for region in operation.regions:
                replace_operands(region, names)
            builder.block.operations.append(operation)
            if self.flying is not None and operation is self.flying.wait:
                operation.attrs["pending"] = 1
                builder.emit("barrier")
                filled = fill()
        last = self.body.operations[-1]
        last.operands = tuple([names.get(operand, operand) for operand in last.operands])
        return fill() if filled is None else filled

    def found(self, builder: IRBuilder, copied: _Copied, slot: Value, names: dict[Value, Value]) -> set[int]:
        """What a turn finds in a slot, as whoever uses the load takes it; the operations that are gone by that."""
        assert copied.slots is not None
        gone, load = set[int](), copied.load
        (place,) = builder.emit("local_index", [copied.slots, slot])
        for use in self.flow.uses.get(load.result, ()):
            inside = id(use) in self.place
            if use.op == "convert_layout" and inside:
                names[use.result] = self.loaded(builder, place, use.attrs["layout"], use)
            elif use.op == "local_store" and inside:
                names[use.operands[0]] = place
            elif use.op == "local_tile" and inside and use.attrs["layout"] == copied.shared:
                names[use.result] = place
            else:
                if load.result not in names:
                    names[load.result] = self.loaded(builder, place, layout_of(load.result.type), load)
                continue
            gone.add(id(use))
        return gone

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
        kept = list(self.loop.results)
        if self.flying is not None:
            place = self.flying.place
            before.emit("wgmma_wait", [results[place]], {"pending": 0}, location=self.loop.location)
            before.block.operations[-1].results = (kept[place],)
            kept[place] = results[place]
        before.emit("async_wait", [], {"pending": 0})
        before.emit("barrier")
        made.results = (*kept, *results[len(kept) :])
        where = self.block.operations.index(self.loop)
        self.block.operations[where : where + 1] = before.block.operations
