"""The reference evaluator: what programs and schedules mean, in plain Python, for small sizes.

Values are rounded to their dtype after each operator (`scalar`); memory is bytes, so that a wrong memory plan gives
wrong numbers: the arena starts full of NaN patterns and is shared as the plan says. Sums are kept in double (or exact
integers) and rounded once, so a result does not depend on the order of a loop by more than the last bit.
With symbolic sizes, values for the symbols are given, and what runs is the static program with these (`resize`).
Neighbours: tests compare programs with their schedules here, and generated kernels with this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from stator.base.dtypes import ITEMSIZE
from stator.loop import scalar
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Launch, Schedule, Store
from stator.loop.nest import Buffer, Extern, Nest, Output, Program, View
from stator.loop.resize import program_at, schedule_at
from stator.loop.scalar import Number
from stator.sizes import Symbol

#: (extern, read) -> for every output its values in row-major order; `read(view)` gives a view's values likewise.
ExternCall = Callable[[Extern, Callable[[View], list[Number]]], Sequence[Sequence[Number]]]


class Memory:
    """Typed access to the bytes behind one buffer."""

    __slots__ = ("data", "dtype", "itemsize", "start")

    def __init__(self, data: bytearray, start: int, dtype: str) -> None:
        self.data, self.start, self.dtype = data, start, dtype
        self.itemsize = ITEMSIZE[dtype]

    @staticmethod
    def fresh(buffer: Buffer) -> Memory:
        """New memory for a buffer, poisoned."""
        return Memory(bytearray(b"\xff" * buffer.nbytes), 0, buffer.dtype)

    def moved(self, elements: int) -> Memory:
        """The same memory from a later element on."""
        return Memory(self.data, self.start + elements * self.itemsize, self.dtype)

    def read(self, position: int) -> Number:
        if position < 0 or self.start + (position + 1) * self.itemsize > len(self.data):
            raise IndexError(f"read at {position}, outside of the buffer")
        return scalar.unpack(self.dtype, self.data, self.start + position * self.itemsize)

    def write(self, position: int, value: Number) -> None:
        start = self.start + position * self.itemsize
        if position < 0 or start + self.itemsize > len(self.data):
            raise IndexError(f"write at {position}, outside of the buffer")
        self.data[start : start + self.itemsize] = scalar.pack(self.dtype, value)


Memories = dict[str, Memory]


def run_program(
    program: Program,
    inputs: Mapping[str, Sequence[Number]],
    extern: ExternCall | None = None,
    sizes: Mapping[Symbol, int] | None = None,
) -> Memories:
    """Run every node on fresh memory (inputs are flat storages); gives all buffers after the run."""
    program = program_at(program, sizes) if sizes else program
    memories = _inputs(program.inputs, inputs)
    for node in program.nodes:
        if isinstance(node, Extern):
            for buffer in node.outputs:
                memories[buffer.name] = Memory.fresh(buffer)
            _call(node, memories, extern)
            continue
        if node.buffer.name not in memories:
            memories[node.buffer.name] = Memory.fresh(node.buffer)
        _run_nest(node, memories)
    return memories


def run_schedule(
    schedule: Schedule,
    inputs: Mapping[str, Sequence[Number]],
    extern: ExternCall | None = None,
    sizes: Mapping[Symbol, int] | None = None,
) -> Memories:
    """Run every step with memory as planned; only inputs and outputs are meaningful afterwards."""
    schedule = schedule_at(schedule, sizes) if sizes else schedule
    plan = schedule.memory
    arena = bytearray(b"\xff" * plan.arena_bytes)
    memories = _inputs(schedule.inputs, inputs)
    for name, offset in plan.offsets.items():
        memories[name] = Memory(arena, offset, schedule.buffers[name].dtype)
    for name in plan.allocated + plan.returned:
        memories[name] = Memory.fresh(schedule.buffers[name])
    for step in schedule.steps:
        if isinstance(step, Launch):
            if step.kernel.attention is not None:
                raise NotImplementedError("attention is no nest of loops that could be evaluated")
            bound = zip(step.kernel.params, step.args, strict=True)
            run_kernel(step.kernel, {param.name: memories[at.buffer].moved(at.offset) for param, at in bound})
        else:
            _call(step.extern, memories, extern)
    return memories


def results(outputs: Iterable[Output], memories: Memories) -> list[Any]:
    """The program's outputs: each view as a row-major list."""
    return [read_view(o, memories[o.buffer]) if isinstance(o, View) else o for o in outputs]


def read_view(view: View, memory: Memory) -> list[Number]:
    """The elements of a view in row-major order."""
    return [memory.read(position) for position in _positions(view.size, view.stride, view.offset)]


def run_kernel(kernel: Kernel, memories: Memories) -> None:
    """As `kernel` describes it: levels in order, inner stores in the last, and in each iteration values before stores.

    So a result may lie over an operand that another store of the iteration still reads.
    """
    top, summed = kernel.levels, set[tuple[str, int]]()
    reductions = [node for node in kernel.nodes if node.op == "reduce"]
    for point in _points(kernel.axes):
        done: dict[Expr, Number] = {}
        scans = [node for node in kernel.nodes if node.op == "scan"]
        for level in range(top + 1):
            running: dict[Expr, Number] = {}
            ready = [node for node in scans if node.level <= level]
            bodies = [node for node in reductions if node.level == level + 1]
            stores = [s for s in kernel.stores if s.space == "inner"] if level == top else []
            sums: list[list[Number]] = [[] for _ in bodies]
            for inner in _points(kernel.reduce_axes) if bodies or stores else ():
                values = _Values({**point, **inner}, memories, done, running=running)
                for node in ready:
                    values(node)
                for node, terms in zip(bodies, sums, strict=True):
                    terms.append(values(node.args[0]))
                _commit(stores, values, memories, summed)
            done.update({node: _reduced(node, terms) for node, terms in zip(bodies, sums, strict=True)})
        _commit([s for s in kernel.stores if s.space == "outer"], _Values(point, memories, done), memories, summed)


def _run_nest(nest: Nest, memories: Memories) -> None:
    """All values see the memory from before the nest, so they come first."""
    writes: list[tuple[int, Number]] = []
    scanned = nest.points[len(nest.axes) :]
    scans = [node for node in postorder([nest.value]) if node.op == "scan"]
    for point in _points(nest.axes):
        running: dict[Expr, Number] = {}
        for inner in _points(scanned):
            values = _Values({**point, **inner}, memories, {}, nest.reduce_axes, running)
            for node in scans:
                values(node)
            writes.append((values.index(nest.index), values(nest.value)))
    for position, value in writes:
        _write(memories[nest.buffer.name], position, value, nest.mode)


class _Values:
    """The values of expressions at one point, each computed once."""

    __slots__ = ("done", "memories", "point", "reduce_axes", "running")

    def __init__(
        self,
        point: dict[Axis, int],
        memories: Memories,
        reduced: Mapping[Expr, Number],
        reduce_axes: tuple[Axis, ...] = (),
        running: dict[Expr, Number] | None = None,
    ) -> None:
        self.point, self.memories, self.reduce_axes = point, memories, reduce_axes
        self.running = {} if running is None else running  # what each scan had come to one point ago
        self.done: dict[Expr, Number] = dict(reduced)

    def index(self, index: Any) -> int:
        return int(index.evaluate(self.point, self))

    def __call__(self, node: Expr) -> Number:
        if node not in self.done:
            self.done[node] = self._compute(node)
        return self.done[node]

    def _compute(self, node: Expr) -> Number:
        match node.op:
            case "load":
                return self.memories[node.attr[0]].read(self.index(node.attr[1]))
            case "const":
                return node.attr
            case "index":
                return self.index(node.attr)
            case "cast":
                return scalar.convert(node.dtype, self(node.args[0]))
            case "bitcast":
                return scalar.unpack(node.dtype, scalar.pack(node.args[0].dtype, self(node.args[0])))
            case "known":
                value = self(node.args[0])
                assert node.attr[0] <= value <= node.attr[1], f"{value} was said to lie in {node.attr}"
                return value
            case "masked":
                return self(node.args[1]) if self(node.args[0]) else self(node.args[2])
            case "random":
                return random(node.attr, self(node.args[0]), self(node.args[1]))
            case "reduce":
                return _reduced(node, self._terms(node))
            case "scan":
                return self._scanned(node)
            case _:
                return scalar.apply(node.op, node.dtype, *[self(a) for a in node.args])

    def _scanned(self, node: Expr) -> Number:
        before, value = self.running.get(node), self(node.args[0])
        if before is not None:
            value = scalar.round_to(node.dtype, scalar.SCANS[node.attr](before, value))
        self.running[node] = value
        return value

    def _terms(self, node: Expr) -> list[Number]:
        below = {n: v for n, v in self.done.items() if n.op == "reduce"}
        terms = []
        running: dict[Expr, Number] = {}
        for inner in _points(self.reduce_axes):
            values = _Values({**self.point, **inner}, self.memories, below, self.reduce_axes, running)
            terms.append(values(node.args[0]))
            below.update({n: v for n, v in values.done.items() if n.op == "reduce"})
        return terms


def _reduced(node: Expr, terms: list[Number]) -> Number:
    kind, dtype = node.attr, node.args[0].dtype
    match kind:
        case "sum":
            return scalar.round_to(dtype, math.fsum(terms) if _finite(terms) else sum(terms))
        case "prod":
            return scalar.round_to(dtype, math.prod(terms))
        case "any" | "all":
            return any(terms) if kind == "any" else all(terms)
    nans = [i for i, term in enumerate(terms) if term != term]
    if kind in ("argmax", "argmin"):
        best = max(terms) if kind == "argmax" else min(terms)
        return nans[0] if nans else terms.index(best)
    if nans:
        return math.nan
    return (max if kind == "max" else min)(terms, default=scalar.identity(kind, dtype))


def _finite(terms: list[Number]) -> bool:
    return all(isinstance(term, float) and math.isfinite(term) for term in terms)


def random(kind: str, seed: int, counter: int) -> float:
    """Philox-4x32-10 keyed by the seed, as `prims.random` specifies it; a float32 value."""
    low = 0xFFFFFFFF
    k0, k1 = seed & low, seed >> 32 & low
    c0, c1, c2, c3 = counter & low, counter >> 32 & low, 0, 0
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = second >> 32 ^ c1 ^ k0, second & low, first >> 32 ^ c3 ^ k1, first & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    if kind == "uniform":
        return (c0 >> 8) * 2.0**-24
    radius = scalar.round_to("f32", math.log(((c0 >> 8) + 1) * 2.0**-24))
    radius = scalar.round_to("f32", math.sqrt(-2.0 * radius))
    angle = scalar.round_to("f32", scalar.round_to("f32", 6.2831855) * ((c1 >> 8) * 2.0**-24))
    result: float = scalar.round_to("f32", radius * scalar.round_to("f32", math.cos(angle)))
    return result


# -- memory ----------------------------------------------------------------------------------------


def _inputs(buffers: Iterable[Buffer], values: Mapping[str, Sequence[Number]]) -> Memories:
    memories: Memories = {}
    for buffer in buffers:
        memory = memories[buffer.name] = Memory.fresh(buffer)
        for position, value in enumerate(values[buffer.name]):
            memory.write(position, scalar.round_to(buffer.dtype, value))
    return memories


def _commit(stores: Iterable[Store], values: _Values, memories: Memories, summed: set[tuple[str, int]]) -> None:
    """All values first; `summed` are the places of sums that have something already."""
    writes = [(s.buffer, values.index(s.index), values(s.value), s.mode) for s in stores]
    for name, position, value, mode in writes:
        if mode == "sum":
            mode = "add" if (name, position) in summed else "store"
            summed.add((name, position))
        _write(memories[name], position, value, mode)


def _write(memory: Memory, position: int, value: Number, mode: str) -> None:
    if mode not in ("store", "put"):
        value = scalar.apply(mode, memory.dtype, memory.read(position), value)
    memory.write(position, value)


def _call(node: Extern, memories: Memories, extern: ExternCall | None) -> None:
    if extern is None:
        raise ValueError(f"the program calls {node.target}; pass `extern` to evaluate it")
    given = extern(node, lambda view: read_view(view, memories[view.buffer]))
    for buffer, values in zip(node.outputs, given, strict=True):
        for position, value in zip(_positions(buffer.size, buffer.stride, 0), values, strict=True):
            memories[buffer.name].write(position, scalar.round_to(buffer.dtype, value))


def _positions(size: Any, stride: Any, offset: Any) -> Iterator[int]:
    """Of a view whose extents are ints by now."""
    for point in product(*[range(n) for n in size]):
        yield offset + sum(i * s for i, s in zip(point, stride, strict=True))


def _points(axes: tuple[Axis, ...]) -> Iterator[dict[Axis, int]]:
    for values in product(*[range(axis.size) for axis in axes]):
        yield dict(zip(axes, values, strict=True))
