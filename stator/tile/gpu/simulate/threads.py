"""Runs functions of tile IR with layouts: a tile is an array of (warp, lane, register), and plans are executed as such.

Checked on the way: all holders of an element have the same one; `vector` accesses are of neighbours, aligned and with
one mask; shared memory has no races. What a back end is free to do in its own way (scans, sorting, tensor cores) is
computed of whole tiles. It is what the IR means, and how passes are tested without a GPU.
Neighbours: `stator.tile.interpret` computes elements; `memory` is that of a program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from stator.tile.gpu.buffers import PARTS, Bytes, scratch_of
from stator.tile.gpu.operators import GPU_OPERATORS, content, slot_bytes
from stator.tile.gpu.scratch import layout_of
from stator.tile.gpu.simulate.memory import Race, SharedMemory
from stator.tile.interpret.casts import Data
from stator.tile.interpret.compute import Given, constant
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.program import Program
from stator.tile.interpret.run import Machine
from stator.tile.interpret.tiles import Combine
from stator.tile.ir.core import Module, Operation
from stator.tile.ir.rules import pointee
from stator.tile.ir.types import Type
from stator.tile.layouts.access import Access, plan_access
from stator.tile.layouts.bits import apply
from stator.tile.layouts.conversion import Nothing, Registers, Shuffles, ThroughShared, plan_conversion
from stator.tile.layouts.linear import LANES, Base, Layout
from stator.tile.layouts.memory import Shared
from stator.tile.layouts.mma import fma_operand
from stator.tile.layouts.reduction import Reduction, partial_of, plan_reduction

Environment: TypeAlias = dict[Any, Any]


@dataclass(frozen=True)
class Place:
    """A buffer, or a slot of one: its type and first byte."""

    type: Type
    start: int


@dataclass(frozen=True)
class Multiplied:
    """What a warp group is computing: nobody has it before the product of this number has been waited for."""

    data: Data
    number: int


@cache
def numbers(layout: Layout) -> Data:
    """The row-major number of the element of every (warp, lane, register)."""
    shape = (layout.warps, 1 << LANES, layout.registers)
    return np.array([layout.number(r, lane, w) for w, lane, r in itertools.product(*map(range, shape))]).reshape(shape)


def spread(tile: Data, layout: Layout) -> Data:
    """A tile as its threads hold it."""
    return np.ascontiguousarray(tile).reshape(-1)[numbers(layout)]


def gathered(held: Data, layout: Layout, what: str) -> Data:
    """What threads hold as a tile; AssertionError where holders of an element differ."""
    where = numbers(layout)
    flat = np.zeros(int(np.prod(layout.shape)), held.dtype)
    flat[where.reshape(-1)] = held.reshape(-1)
    bits = held.view(np.dtype(f"u{held.dtype.itemsize}")) if held.dtype != np.bool_ else held
    wanted = flat[where]
    same = bits == (wanted.view(bits.dtype) if held.dtype != np.bool_ else wanted)
    assert same.all(), f"{what}: threads that hold the same element have different ones"
    return flat.reshape(layout.shape)


@cache
def places(access: Access, shared: Shared, stores: bool, warps: int) -> tuple[Data, Data, Data]:
    """Of an access: register, place in elements and thread of each single one; without duplicates, of stores."""
    registers, offsets, threads = [], [], []
    for warp, lane in itertools.product(range(warps), range(1 << LANES)):
        if stores and (lane & access.duplicates.lane or warp & access.duplicates.warp):
            continue
        own = access.place(lane, warp)
        for vector in access.vectors:
            start = shared.padded(vector.offset ^ own)
            for position, held in enumerate(vector.registers):
                for register in held[:1] if stores else held:
                    registers.append((warp, lane, register))
                    offsets.append(start + position)
                    threads.append(warp << LANES | lane)
    return np.array(registers), np.array(offsets), np.array(threads)


def run(module: Module, name: str, arguments: Sequence[Any], memory: Memory, grid: Sequence[int] = (1, 1, 1)) -> None:
    """A function for every program of a grid, as `stator.tile.interpret.run.run`."""
    function = module.functions[name]
    x, y, z = (*grid, 1, 1, 1)[:3]
    given = [
        constant(Given((), {"value": value}, (param.type,)))
        for value, param in zip(arguments, function.params, strict=True)
    ]
    program = Program(memory, (x, y, z))
    with np.errstate(all="ignore"):
        for k, j, i in itertools.product(range(z), range(y), range(x)):
            program.place = (i, j, k)
            threads = Threads(module, program, function.attrs["shared"], function.attrs["num_warps"])
            threads.call(function, given)
            threads.shared.finish()


class Threads(Machine):
    """The threads of one program, all in step; scalars are the same in all."""

    operators = GPU_OPERATORS

    def __init__(self, module: Module, program: Program, shared: int, warps: int) -> None:
        super().__init__(module, program)
        self.shared, self.warps = SharedMemory(shared), warps
        self.products = 0  # of warp groups, that have begun

    def operation(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        if operation.op not in _TAKE_PRODUCTS and any(isinstance(operand, Multiplied) for operand in operands):
            raise Race(f"{operation.op} takes a product that nobody has waited for")
        if operation.op in _OPERATIONS:
            return _OPERATIONS[operation.op](self, operation, operands, known)
        if operation.op in ("if", "for", "while"):
            return super().operation(operation, operands, known)
        found = self.elements(operation, operands)
        return self.checked(operation, found)

    def elements(self, operation: Operation, operands: list[Any]) -> Sequence[Data]:
        """What happens to each element alone, or to scalars."""
        types = [operand.type for operand in operation.operands]
        results = [result.type for result in operation.results]
        return self.program.compute(operation.op, types, operation.attrs, results, operands)

    def checked(self, operation: Operation, found: Sequence[Data]) -> Sequence[Data]:
        for value, data in zip(operation.results, found, strict=True):
            if isinstance(value.type.layout, Layout):
                gathered(np.ascontiguousarray(data), value.type.layout, operation.op)
        return found

    # ---- tiles as wholes

    def whole(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Data]:
        """Computed of tiles, and spread again: no thread's own doing is looked at."""
        data = [
            self.tile(value.type, item, operation.op) for value, item in zip(operation.operands, operands, strict=True)
        ]
        types = [Type(operand.type.element, operand.type.shape) for operand in operation.operands]
        results = [Type(result.type.element, result.type.shape) for result in operation.results]
        combine = self.combination(operation.regions[0], known) if operation.regions else None
        op = {"mma": "dot"}.get(operation.op, operation.op)
        found = self.program.compute(op, types, operation.attrs, results, data, combine)
        self.works_in(scratch_of(operation))
        return [self.held(value.type, item) for value, item in zip(operation.results, found, strict=True)]

    def works_in(self, scratch: Bytes | None) -> None:
        """One thread writes to scratch, and others read."""
        if scratch is None:
            return
        places = np.arange(scratch.start, scratch.end)
        self.shared.write(places, np.zeros(len(places), np.uint8), np.zeros(len(places), np.int64))
        self.shared.barrier()
        for thread in (0, 1):
            self.shared.read(places, np.dtype(np.uint8), np.full(len(places), thread))

    @staticmethod
    def tile(type_: Type, data: Data, what: str) -> Data:
        return gathered(data, type_.layout, what) if isinstance(type_.layout, Layout) else data

    @staticmethod
    def held(type_: Type, data: Data) -> Data:
        return spread(np.broadcast_to(data, type_.shape), type_.layout) if isinstance(type_.layout, Layout) else data

    # ---- global memory

    def load(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Data]:
        self.vectors(operation, operands[0], operands[1] if len(operands) > 1 else None)
        return self.checked(operation, self.elements(operation, operands))

    def store(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Data]:
        self.vectors(operation, operands[0], operands[2] if len(operands) > 2 else None)
        return self.whole(operation, operands, known)

    def vectors(self, operation: Operation, pointers: Data, mask: Data | None) -> None:
        """What `vector` promises."""
        width = operation.attrs["vector"]
        if width == 1:
            return
        first = 1 if operation.op == "async_copy" else 0
        itemsize = pointee(operation.operands[first].type).element.itemsize
        shape = (*pointers.shape[:-1], -1, width)
        groups = pointers.reshape(shape)
        active = np.ones(groups.shape, np.bool_) if mask is None else mask.reshape(shape)
        assert (active == active[..., :1]).all(), f"{operation.op}: one mask for {width} elements"
        apart = groups - groups[..., :1] == np.arange(width) * itemsize
        assert apart[active].all(), f"{operation.op}: {width} elements are no neighbours"
        assert not (groups[..., 0] % (width * itemsize))[active[..., 0]].any(), f"{operation.op}: not aligned"

    # ---- shared memory

    def local_alloc(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        return [Place(operation.result.type, operation.attrs["offset"])]

    def part(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        place, start = operands[0], operands[0].start
        if operation.op == "local_index":
            slot = int(operands[1])
            assert 0 <= slot < place.type.shape[0], f"slot {slot} of {place.type}"
            start += slot * slot_bytes(place.type)
        return [Place(operation.result.type, start)]

    def _access(
        self, place: Place, layout: Layout, stores: bool, start: Base | None = None
    ) -> tuple[Data, Data, Data, np.dtype[Any]]:
        shared, dtype = place.type.layout, content(place.type)
        assert isinstance(shared, Shared)
        access = plan_access(layout, shared, dtype.itemsize, start)
        registers, offsets, threads = places(access, shared, stores, layout.warps)
        return registers, place.start + offsets * dtype.itemsize, threads, dtype.numpy

    def local_load(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        layout, start = operation.attrs["layout"], operation.attrs["start"]
        return self.checked(operation, [self.loaded(operands[0], layout, start)])

    def loaded(self, place: Place, layout: Layout, start: Base | None = None) -> Data:
        registers, where, threads, dtype = self._access(place, layout, stores=False, start=start)
        held = np.zeros(numbers(layout).shape, dtype)
        held[tuple(registers.T)] = self.shared.read(where, dtype, threads)
        return held

    def local_store(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        layout = operation.operands[1].type.layout
        assert isinstance(layout, Layout)
        registers, where, threads, _ = self._access(operands[0], layout, stores=True)
        self.shared.write(where, operands[1][tuple(registers.T)], threads)
        return []

    def async_copy(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        place, *rest = operands
        self.vectors(operation, rest[0], rest[1] if len(rest) > 1 else None)
        types = [operand.type for operand in operation.operands[1:]]
        (values,) = self.program.compute("load", types, operation.attrs, [pointee(types[0])], rest)
        layout = types[0].layout
        assert isinstance(layout, Layout)
        registers, where, threads, _ = self._access(place, layout, stores=True)
        self.shared.copy(where, values[tuple(registers.T)], threads)
        return []

    def synchronise(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        match operation.op:
            case "barrier":
                self.shared.barrier()
            case "proxy_fence":
                self.shared.fence()
            case "async_commit":
                self.shared.commit()
            case "async_wait":
                self.shared.wait(operation.attrs["pending"])
        return []

    def dot(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        """Each thread reads what its results are made of."""
        layout = operation.result.type.layout
        assert isinstance(layout, Layout)
        inner = operands[0].type.shape[-1]
        sides = [fma_operand(layout, index, inner) for index in (0, 1)]
        data = [gathered(self.loaded(operands[i], sides[i]), sides[i], "dot") for i in (0, 1)]
        types = [Type(content(place.type), place.type.shape) for place in operands[:2]]
        result = Type(operation.result.type.element, operation.result.type.shape)
        acc = gathered(operands[2], layout, "dot")
        (found,) = self.program.compute("dot", [*types, result], operation.attrs, [result], [*data, acc])
        return [spread(found, layout)]

    def wgmma(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        """Of tiles as wholes; what comes out is nothing that other operations take."""
        self.shared.begin_product()
        a, b = [
            self._matrix(operand) if isinstance(operand, Place) else self.tile(value.type, operand, "wgmma")
            for value, operand in zip(operation.operands[:2], operands[:2], strict=True)
        ]
        acc = operands[2].data if isinstance(operands[2], Multiplied) else operands[2]
        result = Type(operation.result.type.element, operation.result.type.shape)
        dtype = content(operation.operands[1].type)
        types = [Type(dtype, a.shape), Type(dtype, b.shape), result]
        total = self.tile(operation.result.type, acc, "wgmma")
        (found,) = self.program.compute("dot", types, operation.attrs, [result], [a, b, total])
        self.products += 1
        return [Multiplied(self.held(operation.result.type, found), self.products)]

    def _matrix(self, place: Place) -> Data:
        """All of a buffer, as a warp group reads it."""
        shared, dtype = place.type.layout, content(place.type)
        assert isinstance(shared, Shared)
        offsets = np.array([apply(shared.places, number) for number in range(place.type.numel)])
        return self.shared.multiply(place.start + offsets * dtype.itemsize, dtype.numpy).reshape(place.type.shape)

    def wgmma_wait(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        """Of what a loop with no turn gives nothing is on its way."""
        (product,), pending = operands, operation.attrs["pending"]
        self.shared.end_products(pending)
        if not isinstance(product, Multiplied):
            return [product]
        return [product if product.number > self.products - pending else product.data]

    # ---- between threads

    def view(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        """Registers of the operands that are those of the results: nothing moves."""
        if operation.op == "splat" or all(value.type.is_scalar for value in operation.operands):
            return self.whole(operation, operands, known)
        types = [Type(operand.type.element, operand.type.shape) for operand in operation.operands]
        results = [Type(result.type.element, result.type.shape) for result in operation.results]
        layouts = [layout_of(value.type) for value in operation.operands]
        found = []
        for thread in itertools.product(range(self.warps), range(1 << LANES)):
            found.append(self._view_of(operation, types, results, layouts, operands, thread))
        shape = (self.warps, 1 << LANES)
        return [
            np.array([each[i] for each in found]).reshape(*shape, -1) if not result.type.is_scalar else found[0][i][0]
            for i, result in enumerate(operation.results)
        ]

    def _view_of(
        self,
        operation: Operation,
        types: list[Type],
        results: list[Type],
        layouts: list[Layout],
        operands: list[Any],
        thread: tuple[int, int],
    ) -> list[Data]:
        """What one thread makes of its own registers."""
        inside, data = [], []
        for layout, held, type_ in zip(layouts, operands, types, strict=True):
            tile = np.zeros(type_.numel, held.dtype)
            known = np.zeros(type_.numel, np.bool_)
            tile[numbers(layout)[thread]] = held[thread]
            known[numbers(layout)[thread]] = True
            data.append(tile.reshape(type_.shape))
            inside.append(known.reshape(type_.shape))
        made = self.program.compute(operation.op, types, operation.attrs, results, data)
        have = self.program.compute(operation.op, types, operation.attrs, results, inside)
        found = []
        for value, item, has in zip(operation.results, made, have, strict=True):
            if value.type.is_scalar:
                assert has.all(), f"{operation.op}: a thread does not have the result"
                found.append(np.asarray(item).reshape(-1))
                continue
            where = numbers(layout_of(value.type))[thread]
            assert np.asarray(has).reshape(-1)[where].all(), f"{operation.op}: a thread has not all of its part"
            found.append(np.asarray(item).reshape(-1)[where])
        return found

    def convert(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        (old,), value = operands, operation.operands[0]
        source, target = value.type.layout, operation.attrs["layout"]
        assert isinstance(source, Layout)
        plan = plan_conversion(source, target, value.type.element.itemsize)
        match plan:
            case Nothing():
                new = old
            case Registers(sources):
                new = old[..., list(sources)]
            case Shuffles():
                new = _shuffled(plan, old)
            case ThroughShared():
                new = self.through(plan, old, target, operation.attrs["scratch"])
        return self.checked(operation, [np.ascontiguousarray(new)])

    def through(self, plan: ThroughShared, old: Data, target: Layout, start: int) -> Data:
        itemsize = old.dtype.itemsize
        registers, offsets, threads = places(plan.store, plan.shared, True, self.warps)
        self.shared.write(start + offsets * itemsize, old[tuple(registers.T)], threads)
        self.shared.barrier()
        registers, offsets, threads = places(plan.load, plan.shared, False, self.warps)
        new = np.zeros(numbers(target).shape, old.dtype)
        new[tuple(registers.T)] = self.shared.read(start + offsets * itemsize, old.dtype, threads)
        return new

    def reduce(self, operation: Operation, operands: list[Any], known: Environment) -> Sequence[Any]:
        layout, axis = operation.operands[0].type.layout, operation.attrs["axis"]
        assert isinstance(layout, Layout)
        plan = plan_reduction(layout, axis)
        combine = self.combination(operation.regions[0], known)
        columns = [[held[..., group[0]] for group in plan.groups] for held in operands]
        for turn in range(1, len(plan.groups[0])):
            for place, group in enumerate(plan.groups):
                found = combine([column[place] for column in columns], [held[..., group[turn]] for held in operands])
                for column, item in zip(columns, found, strict=True):
                    column[place] = item
        held = [np.stack(column, axis=-1) for column in columns]
        lanes = np.arange(1 << LANES)
        for bit in plan.lanes:
            other = [item[:, lanes ^ bit] for item in held]
            first = (lanes & bit == 0)[None, :, None]
            left = [np.where(first, mine, theirs) for mine, theirs in zip(held, other, strict=True)]
            right = [np.where(first, theirs, mine) for mine, theirs in zip(held, other, strict=True)]
            held = list(combine(left, right))
        if plan.warps:
            held = self.across_warps(operation, plan, layout, held, combine)
        return self.checked(operation, [_scalar(item) if layout.rank == 1 else item for item in held])

    def across_warps(
        self, operation: Operation, plan: Reduction, layout: Layout, held: list[Data], combine: Combine
    ) -> list[Data]:
        """Parts go to scratch, as `gpu.scratch` counts them: part p of result n is at p * results + n."""
        result = layout.slice(operation.attrs["axis"])
        where = np.zeros(held[0].shape, np.int64) if result is None else numbers(result)
        count = 1 if result is None else int(np.prod(result.shape))
        parts = np.array([partial_of(plan, warp) for warp in range(self.warps)])
        thread = np.arange(self.warps)[:, None, None] << LANES | np.arange(1 << LANES)[None, :, None]
        start, starts = operation.attrs["scratch"], []
        for item in held:
            starts.append(start)
            slots = parts[:, None, None] * count + where
            _, first = np.unique(slots.reshape(-1), return_index=True)
            address = start + slots.reshape(-1)[first] * item.dtype.itemsize
            self.shared.write(address, item.reshape(-1)[first], np.broadcast_to(thread, item.shape).reshape(-1)[first])
            start += -(-plan.partials * count * item.dtype.itemsize // 16) * 16
        self.shared.barrier()
        rows = []
        for part in range(plan.partials):
            rows.append([
                self.shared.read(begin + (part * count + where) * item.dtype.itemsize, item.dtype,
                                 np.broadcast_to(thread, item.shape))
                for begin, item in zip(starts, held, strict=True)
            ])  # fmt: skip
        found = rows[0]
        for row in rows[1:]:
            found = list(combine(found, row))
        return found


def _scalar(held: Data) -> Data:
    """A number that all threads have."""
    first = np.asarray(held.reshape(-1)[0])
    same = held == first
    assert (same | (held != held)).all(), "threads have different results of a reduction"
    return first


def _shuffled(plan: Shuffles, old: Data) -> Data:
    warps, lanes = old.shape[:2]
    new = np.zeros((warps, lanes, len(plan.rounds)), old.dtype)
    for warp, lane in itertools.product(range(warps), range(lanes)):
        for number, (register, step) in enumerate(plan.rounds):
            source = step ^ apply(plan.lanes, lane) ^ apply(plan.warps, warp)
            value = old[warp, source, register ^ apply(plan.before, source)]
            new[warp, lane, number ^ apply(plan.after, lane)] = value
    return new


#: Operators that take what a warp group is computing.
_TAKE_PRODUCTS = frozenset(["wgmma", "wgmma_wait", "for", "while"])
_Row: TypeAlias = Callable[[Threads, Operation, "list[Any]", Environment], Sequence[Any]]
_OPERATIONS: Mapping[str, _Row] = {
    "constant": Threads.whole, "arange": Threads.whole, "scan": Threads.whole, "sort": Threads.whole,
    "gather": Threads.whole, "histogram": Threads.whole, "atomic_rmw": Threads.whole, "atomic_cas": Threads.whole,
    "mma": Threads.whole, "print": Threads.whole, "assert": Threads.whole, "assume": Threads.whole,
    "splat": Threads.view, "broadcast": Threads.view, "expand_dims": Threads.view, "reshape": Threads.view,
    "permute": Threads.view, "join": Threads.view, "split": Threads.view, "cat": Threads.view,
    "load": Threads.load, "store": Threads.store, "reduce": Threads.reduce, "convert_layout": Threads.convert,
    "local_alloc": Threads.local_alloc, **dict.fromkeys(PARTS, Threads.part), "local_load": Threads.local_load,
    "local_store": Threads.local_store, "async_copy": Threads.async_copy, "dot": Threads.dot,
    "wgmma": Threads.wgmma, "wgmma_wait": Threads.wgmma_wait, "proxy_fence": Threads.synchronise,
    "barrier": Threads.synchronise, "async_commit": Threads.synchronise, "async_wait": Threads.synchronise,
}  # fmt: skip
