"""Symbols replaced by other extents, everywhere in a program, kernel or schedule.

This is what symbolic sizes mean: a program with symbols is, for any values of them, the static program that stands here
with these values put in. `canonical` renames the symbols of kernels with it; `evaluate` and `verify` look at the static
programs that it gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stator.loop.attention import Attention
from stator.loop.expr import Expr, Rewriter, postorder
from stator.loop.index import Axis, FloorDiv, Index, Indirect, Mod
from stator.loop.kernel import Call, Kernel, Launch, Param, Schedule, Step, Store, kernel
from stator.loop.memory import offsets_of
from stator.loop.nest import Buffer, Extern, Nest, Number, Program, View
from stator.sizes import Derived, Extent, Size, Symbol, evaluate, in_told, substitute, symbols
from stator.sizes.real import Bits
from stator.sizes.strides import Shape


class Resizer(Rewriter):
    """Rewrites with other extents in place of symbols."""

    __slots__ = ("_sizes", "values")

    def __init__(self, values: Mapping[Symbol, Extent]) -> None:
        super().__init__({})
        self.values = values
        self._sizes: dict[Extent, Extent] = {}

    def size(self, extent: Extent) -> Extent:
        """One extent."""
        if type(extent) is not Size:
            return extent
        found = self._sizes.get(extent)
        if found is None:
            found = self._sizes[extent] = substitute(extent, self.values)
        return found

    def shape(self, extents: Iterable[Extent]) -> Shape:
        """Several."""
        return tuple([self.size(extent) for extent in extents])

    def index(self, position: Index) -> Index:
        """The rewritten index."""
        return position.resized(self.size, self)

    def axes(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """The same loops over other ranges."""
        return tuple([Axis(axis.name, self.size(axis.size)) for axis in axes])

    def buffer(self, buffer: Buffer) -> Buffer:
        """The same buffer, of another size."""
        return replace(buffer, size=self.shape(buffer.size), stride=self.shape(buffer.stride))

    def store(self, store: Store) -> Store:
        """The same store, elsewhere."""
        return replace(store, index=self.index(store.index), value=self(store.value))

    def kernel_parts(
        self, axes: Iterable[Axis], reduce_axes: Iterable[Axis], stores: Iterable[Store], params: Iterable[Param]
    ) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Store, ...], tuple[Param, ...]]:
        """What a kernel is made of."""
        resized = tuple([replace(param, numel=self.size(param.numel)) for param in params])
        return self.axes(axes), self.axes(reduce_axes), tuple([self.store(s) for s in stores]), resized

    def argument(self, value: Any) -> Any:
        """An argument of an extern, or an output."""
        match value:
            case View(buffer, size, stride, offset, opaque):
                return View(buffer, self.shape(size), self.shape(stride), self.size(offset), opaque)
            case tuple():
                return tuple([self.argument(item) for item in value])
            case Bits(size):
                return Bits(self.size(size))
        return self.size(value)

    def extern(self, node: Extern) -> Extern:
        """A call with other sizes."""
        kwargs = tuple([(key, self.argument(value)) for key, value in node.kwargs])
        outputs = tuple([self.buffer(buffer) for buffer in node.outputs])
        sizes = self.shape(node.sizes)
        return replace(node, args=self.argument(node.args), kwargs=kwargs, outputs=outputs, sizes=sizes)

    def attention(self, attention: Attention) -> Attention:
        """Attention of other sizes."""
        batches, queries, keys, logs = self.shape(
            (attention.batches, attention.queries, attention.keys, attention.logs)
        )
        strides = tuple([(name, self.shape(stride)) for name, stride in attention.strides])
        score = self(attention.score) if attention.score is not None else None
        return replace(
            attention, batches=batches, queries=queries, keys=keys, logs=logs, strides=strides, score=score
        )  # fmt: skip

    def nest(self, nest: Nest) -> Nest:
        """A nest over other ranges."""
        index, value = self.index(nest.index), self(nest.value)
        axes, reduce_axes = self.axes(nest.axes), self.axes(nest.reduce_axes)
        return Nest(self.buffer(nest.buffer), axes, reduce_axes, value, index, nest.mode, nest.operators)

    def number(self, number: Number) -> Number:
        """An input that is a number, with its value."""
        return replace(number, value=self.size(number.value))


class Teller(Resizer):
    """Rewrites with the symbols that inputs tell in place of parts of them."""

    __slots__ = ("parts",)

    def __init__(self, parts: Derived) -> None:
        super().__init__({})
        self.parts = parts

    def size(self, extent: Extent) -> Extent:
        """One extent."""
        return in_told(extent, self.parts)

    def step(self, step: Step) -> Step:
        """What runs: a kernel has symbols of its own, which the launch tells."""
        if isinstance(step, Call):
            return Call(self.extern(step.extern))
        return replace(step, sizes=self.shape(step.sizes))


def program_at(program: Program, values: Mapping[Symbol, Extent]) -> Program:
    """The program with its symbols replaced."""
    resizer = Resizer(values)
    return replace(
        program,
        inputs=tuple([resizer.buffer(buffer) for buffer in program.inputs]),
        nodes=tuple([resizer.extern(n) if isinstance(n, Extern) else resizer.nest(n) for n in program.nodes]),
        outputs=resizer.argument(program.outputs),
        numbers=tuple([resizer.number(number) for number in program.numbers]),
    )


def kernel_at(launch: Launch, values: Mapping[Symbol, Extent]) -> Kernel:
    """The kernel of a launch with its symbols replaced."""
    made = launch.kernel
    sizes = {symbol: substitute(size, values) for symbol, size in zip(made.symbols, launch.sizes, strict=True)}
    resizer = Resizer(sizes)
    attention = resizer.attention(made.attention) if made.attention is not None else None
    parts = resizer.kernel_parts(made.axes, made.reduce_axes, made.stores, made.params)
    return kernel(*parts, attention=attention)


def schedule_at(schedule: Schedule, values: Mapping[Symbol, int]) -> Schedule:
    """The schedule with values for its symbols, and memory as it is then."""
    resizer = Resizer(values)
    offsets, total = offsets_of(schedule.memory.blocks, lambda size: evaluate(size, values))
    steps: list[Step] = []
    for step in schedule.steps:
        made = (
            Call(resizer.extern(step.extern)) if isinstance(step, Call) else Launch(kernel_at(step, values), step.args)
        )
        steps.append(made)
    return replace(
        schedule,
        kernels=tuple(dict.fromkeys(step.kernel for step in steps if isinstance(step, Launch))),
        steps=tuple(steps),
        buffers={name: resizer.buffer(buffer) for name, buffer in schedule.buffers.items()},
        memory=replace(
            schedule.memory, arena_bytes=total, offsets={name: offsets[name] for name in schedule.memory.offsets}
        ),
        inputs=tuple([resizer.buffer(buffer) for buffer in schedule.inputs]),
        outputs=resizer.argument(schedule.outputs),
        numbers=tuple([resizer.number(number) for number in schedule.numbers]),
        symbols=(),
    )


# -- which symbols occur ---------------------------------------------------------------------------


def symbols_in(axes: Iterable[Axis], stores: Iterable[Store], params: Iterable[Param]) -> list[Symbol]:
    """The symbols of a kernel, in order of first use."""
    stores = list(stores)
    extents = [axis.size for axis in axes]
    extents += _in_values([root for store in stores for root in store.roots])
    extents += [extent for store in stores for extent in extents_of(store.index)]
    extents += [param.numel for param in params]
    return _symbols_of(extents)


def symbols_of_attention(attention: Attention, params: Iterable[Param]) -> list[Symbol]:
    """The symbols of a kernel that is attention, in order of first use."""
    score = _in_values([attention.score]) if attention.score is not None else []
    return _symbols_of([*attention.extents, *score, *[param.numel for param in params]])


def _in_values(values: list[Expr]) -> list[Extent]:
    """The extents of positions, and of what expressions load from."""
    nodes = [node for node in postorder(values) if node.op in ("load", "index")]
    return [extent for node in nodes for extent in extents_of(node.attr[1] if node.op == "load" else node.attr)]


def _symbols_of(extents: Iterable[Extent]) -> list[Symbol]:
    found: dict[Symbol, None] = {}
    for extent in extents:
        if type(extent) is Size:
            found.update(dict.fromkeys(sorted(symbols(extent), key=lambda symbol: symbol.order)))
    return list(found)


def extents_of(index: Index) -> list[Extent]:
    """Every extent that an index is written with; not those of its axes, nor of what it loads."""
    found = [index.const]
    for atom, coefficient in index.terms:
        found.append(coefficient)
        match atom:
            case FloorDiv() | Mod():
                found += [atom.divisor, *extents_of(atom.inner)]
            case Indirect():
                found.append(atom.bound)
    return found
