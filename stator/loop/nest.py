"""Programs: what lowering makes, one nest for every buffer, plus calls of outside kernels.

    Program = inputs, nodes, outputs, mutated
    node    = Nest    for axes: buffer[index] = value          (value may reduce over reduce_axes)
                      (value may scan over them: then the store is in their loops too)
            | Extern  outputs = target(*args, **kwargs)
Nodes are in an order in which they may run. Buffers are named; positions in them are flat, in elements, and include
strides. Sizes may be symbolic: symbols are found in the geometry of inputs and in `numbers`. A buffer may be written
by several nests (they write different elements, or the later ones scatter). A nest that writes an input is a mutation
of it: nodes before it see the old value, nodes after it the new one.
Neighbours: lowering makes programs, `schedule` turns them into kernels, `verify` checks them, `text` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from stator.base.device import HOST
from stator.base.dtypes import ITEMSIZE, OPAQUE
from stator.base.effects import LASTING, Effect
from stator.loop.expr import Expr, scans
from stator.loop.index import Axis, Index
from stator.sizes import Derived, Extent, Size, Symbol, symbols
from stator.sizes.strides import Shape, span

if TYPE_CHECKING:
    from stator.loop.kernel import Kernel


class Geometry(NamedTuple):
    """A tensor as operators see it."""

    dtype: str
    size: Shape
    stride: Shape
    offset: Extent = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory: an input, an output or something in between.

    `opaque` is what operators take it for, where it is one of `dtypes.OPAQUE`: a complex tensor is pairs of floats in
    a last dimension.
    """

    name: str
    dtype: str
    size: Shape
    stride: Shape
    device: str = HOST
    opaque: str = ""

    @property
    def geometry(self) -> Geometry:
        """What operators see."""
        return _geometry(self.opaque, Geometry(self.dtype, self.size, self.stride))

    @property
    def span(self) -> Extent:
        """How many elements lie between its first and its last, both included."""
        return span(self.size, self.stride)

    @property
    def numel(self) -> Extent:
        return prod(self.size)

    @property
    def nbytes(self) -> Extent:
        return self.span * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class View:
    """How an extern argument or an output reads a buffer (offset in elements); `opaque` as for buffers."""

    buffer: str
    size: Shape
    stride: Shape
    offset: Extent = 0
    opaque: str = ""

    def geometry(self, buffer: Buffer) -> Geometry:
        """What operators see."""
        return _geometry(self.opaque, Geometry(buffer.dtype, self.size, self.stride, self.offset))


def _geometry(opaque: str, memory: Geometry) -> Geometry:
    """A tensor over memory that is described by what loops know."""
    if not opaque:
        return memory
    width = OPAQUE[opaque][1]
    if width == 1:
        return memory._replace(dtype=opaque)
    stride = tuple([step // width for step in memory.stride[:-1]])
    return Geometry(opaque, memory.size[:-1], stride, memory.offset // width)


@dataclass(frozen=True, slots=True)
class Number:
    """An input that is an integer, and where it stands among all inputs; others may be computed from its value."""

    name: str
    position: int
    value: Extent


class Operator(NamedTuple):
    """An operator of the user's program: what it is called there, and the file and line, where they are known."""

    name: str
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """Loops over `axes` that write `value` to `buffer[index]`, in a mode of `collision.MODES`.

    The dtype of the value is that of the buffer. `reduce` nodes in the value run over all `reduce_axes`. With `scan`
    nodes in it there is a value, and a store, for each point of `reduce_axes` too. `operators`: what the user's
    program calls what is computed, and where, for readers.
    """

    buffer: Buffer
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    value: Expr
    index: Index
    mode: str = "store"
    operators: tuple[Operator, ...] = ()

    @property
    def points(self) -> tuple[Axis, ...]:
        """The axes along which elements are stored."""
        return (*self.axes, *self.reduce_axes) if scans([self.value]) else self.axes


class Text(str):
    """A string among the arguments of an operator; a plain one that starts with "torch." is a Python expression."""

    __slots__ = ()


Argument: TypeAlias = Any  # View | bool | int | float | str | None | Size | tuple of these


@dataclass(frozen=True, slots=True, eq=False)
class Extern:
    """A call of an ATen operator by name; with `out_target` it writes buffers that the caller allocates.

    One with `effects` runs whether its results are read or not; those that do more than check stay in their order.
    `taken` says which of its results `outputs` are; the others may be undefined, and nobody reads them.
    One that `fails` may raise for the values that it is given. One that is `foreign` is code of the program. Results of
    one that is `fresh` lie in memory that it has made and that nobody else has.
    With a `kernel` it is that, launched on the memory of its arguments and then of its outputs; `sizes` are what its
    symbols are.
    """

    name: str
    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    outputs: tuple[Buffer, ...]
    out_target: str | None = None
    effects: tuple[Effect, ...] = ()
    taken: tuple[int, ...] = (0,)
    fails: bool = True
    foreign: bool = False
    fresh: bool = False
    kernel: Kernel | None = None
    sizes: tuple[Extent, ...] = ()

    @property
    def ordered(self) -> bool:
        """Whether it is seen in which order it runs."""
        return any(effect is not Effect.CHECK for effect in self.effects)

    @property
    def lasting(self) -> bool:
        """Whether it does what nobody can take back."""
        return not LASTING.isdisjoint(self.effects)

    def views(self) -> list[View]:
        """Every view among its arguments, in order."""
        return views_in((self.args, tuple(value for _, value in self.kwargs)))


Node: TypeAlias = Nest | Extern
Output: TypeAlias = View | Size | bool | int | float | None


@dataclass(frozen=True, eq=False)
class Program:
    """A graph of nests and extern calls."""

    name: str
    device: str
    inputs: tuple[Buffer, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    mutated: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    #: Which device of its kind; None for the one that is current when it runs.
    device_number: int | None = None
    #: The symbols that are parts of those that inputs tell when it runs.
    parts: Derived = field(default_factory=dict)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol of its inputs."""
        return symbols_of(self.inputs, self.numbers)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name: inputs, then in order of the first write."""
        table = {buffer.name: buffer for buffer in self.inputs}
        for node in self.nodes:
            for buffer in node.outputs if isinstance(node, Extern) else (node.buffer,):
                table.setdefault(buffer.name, buffer)
        return table


def views_in(argument: Argument) -> list[View]:
    """The views in an argument of any nesting."""
    if isinstance(argument, View):
        return [argument]
    if isinstance(argument, tuple | list):
        return [view for item in argument for view in views_in(item)]
    return []


def symbols_of(inputs: Iterable[Buffer], numbers: Iterable[Number]) -> tuple[Symbol, ...]:
    """The symbols that inputs tell, in a fixed order."""
    extents = [extent for buffer in inputs for extent in (*buffer.size, *buffer.stride) if type(extent) is Size]
    extents += [number.value for number in numbers if type(number.value) is Size]
    found = {symbol for extent in extents for symbol in symbols(extent)}
    return tuple(sorted(found, key=lambda symbol: symbol.order))
