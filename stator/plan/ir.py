"""What a call of a graph runs, as data: inputs, memory, steps in order, results.

    Plan    = name, inputs, reads, arena, streams, effects, steps, results, failure
    step    = Allocate   name = new memory
            | Reuse      name = memory of an operand that dies in the next step
            | Launch     kernel(address, …, size, …)
            | Invoke     name, … = operator(argument, …), or operator(argument, …, out=tensor)
            | Release    del name, …
            | Wait       a stream goes on behind what another one has been given
    tensor  = Whole | Turned (the transpose) | Reread (its memory with another geometry)

A name is an input, a piece of the arena, or what a step before has made. Symbols of sizes are inputs, or read from the
geometry of inputs. Stream 0 is the current one; effects have the order of the graph. Nothing is decided when a plan is
printed, kept or run. Neighbours: `build` makes, `verify` checks, `text` prints, `data` keeps, `executor` runs plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from stator.base.device import HOST
from stator.sizes import Extent, Size
from stator.sizes.real import Bits
from stator.sizes.strides import Shape


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor's dtype, size and strides in elements."""

    dtype: str
    size: Shape
    stride: Shape


# ---- what steps take ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor as it was declared."""

    name: str


@dataclass(frozen=True, slots=True)
class Turned:
    """The transpose of a matrix."""

    name: str


@dataclass(frozen=True, slots=True)
class Reread:
    """The memory of a tensor with another form, from `offset` elements (of that form's dtype) behind its first.

    `casts`: the dtype is another one, too.
    """

    name: str
    form: Form
    offset: Extent = 0
    casts: bool = False


Tensor: TypeAlias = Whole | Turned | Reread


@dataclass(frozen=True, slots=True)
class Torch:
    """A constant of torch among the arguments of an operator: a dtype, a layout, a memory format, a device."""

    expression: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where a kernel's argument begins, so many bytes behind a tensor's first element; whether the kernel writes it."""

    tensor: Tensor
    moved: int = 0
    written: bool = False


Argument: TypeAlias = Any  # Tensor | Torch | None | bool | int | float | complex | str | Size | Bits | tuple of these


# ---- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory that nobody else holds, not cleared; `large` in that of earlier results, or in huge pages."""

    name: str
    form: Form
    device: str = HOST
    large: bool = False
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Reuse:
    """The memory of an operand which nothing reads after the next step; None where the form is the operand's."""

    name: str
    donor: str
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel, by its name, on addresses and then sizes, on the device of its stream."""

    kernel: str
    addresses: tuple[Address, ...]
    sizes: tuple[Extent, ...] = ()
    effects: tuple[int, ...] = ()
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """A result of an operator that is asked for: which one, its name, and the geometry that is relied on."""

    position: int
    name: str
    size: Shape
    stride: Shape
    device: str = HOST


@dataclass(frozen=True, slots=True)
class Into:
    """The variant of an operator that writes its result to memory that it is given."""

    target: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call an operator of PyTorch: it makes the results, or writes `into` memory."""

    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[Result, ...] = ()
    into: Into | None = None
    effects: tuple[int, ...] = ()
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of inputs and results that nothing reads from here on."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream goes on when all is done that was queued on another one so far."""

    stream: int
    other: int


Step: TypeAlias = Allocate | Reuse | Launch | Invoke | Release | Wait


# ---- memory and plans -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor in the arena: it begins at a byte, counted from the start of a block where there are blocks."""

    name: str
    form: Form
    start: Extent
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that are in use from one of the schedule's steps to another; `names` are buffers that take turns there."""

    nbytes: Extent
    first: int
    last: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arena:
    """Memory of intermediates: `nbytes` with pieces at known places, or blocks that are placed when sizes are known."""

    nbytes: int
    pieces: tuple[Piece, ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor, or an integer, which is a symbol where `number` has one."""

    name: str
    form: Form | None
    device: str = HOST
    number: Extent | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A symbol: the "size" or "stride" of an input at a dim."""

    symbol: str
    name: str
    what: str
    dim: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a step does beside computing: its kind (`base/effects.py`), and the input that it writes, if it does."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """What happens where a step raises, by the numbers of steps.

    From `begin` to `unsure` the memory of `kept` is put back. From `spoiled` on something is written for good, and what
    is raised says so; None where nothing is.
    """

    begin: int = 0
    kept: tuple[str, ...] = ()
    unsure: int = 0
    spoiled: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph as it runs; `unused` are inputs that nothing reads. `hints` are values of symbols to try it with.

    `streams` are the devices of stream 1, 2, …; `device` is that of stream 0 and of the arena, with its number, or
    without one the current device of its kind.
    """

    name: str
    device: str
    kernels: tuple[str, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[Argument, ...]
    reads: tuple[Read, ...] = ()
    unused: tuple[str, ...] = ()
    arena: Arena = field(default_factory=lambda: Arena(0))
    failure: Failure = field(default_factory=Failure)
    hints: tuple[tuple[str, int], ...] = ()
    effects: tuple[Effect, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def launches(self) -> tuple[str, ...]:
        """The kernel of every launch, in order."""
        return tuple([step.kernel for step in self.steps if isinstance(step, Launch)])

    @property
    def externs(self) -> tuple[str, ...]:
        """Every operator that is called, in order."""
        return tuple([step.target for step in self.steps if isinstance(step, Invoke)])

    @property
    def places(self) -> dict[str, str]:
        """The device of everything that has a name."""
        found = {given.name: given.device for given in self.inputs}
        found.update({piece.name: self.device for piece in self.arena.pieces})
        for step in self.steps:
            match step:
                case Allocate(name):
                    found[name] = step.device
                case Reuse(name, donor):
                    found[name] = found[donor]
                case Invoke():
                    found.update({result.name: result.device for result in step.results})
        return found

    @property
    def told(self) -> tuple[str, ...]:
        """The symbols that the arena depends on."""
        found = symbols_in((self.arena.pieces, self.arena.blocks)) if self.arena.blocks else ()
        return tuple([name for name, _ in self.hints if name in found])


def is_sized(*shapes: Shape) -> bool:
    """Whether there is a symbol in what mostly are numbers."""
    return any(type(extent) is Size for shape in shapes for extent in shape)


def symbols_in(item: Any) -> set[str]:
    """The names of the symbols in a part of a plan."""
    return {symbol.name for size in _parts(item, Size) for symbol in size.symbols}


def names_in(item: Any) -> set[str]:
    """The names of the tensors in a part of a plan."""
    return {tensor.name for tensor in _parts(item, Whole, Turned, Reread)}


def _parts(item: Any, *kinds: type) -> list[Any]:
    """What is of these kinds in a part of a plan; of a record that stands in many places, what is in it once."""
    found, rest = [], [item]
    seen: set[int] = set()
    while rest:
        item = rest.pop()
        kind = type(item)
        if kind in kinds:
            found.append(item)
        if kind is tuple:
            rest.extend([part for part in item if type(part) not in _PLAIN])
        elif kind in FIELDS and id(item) not in seen:
            seen.add(id(item))
            rest.extend([part for name in FIELDS[kind] if type(part := getattr(item, name)) not in _PLAIN])
    return found


_PLAIN = frozenset((int, str, bool, float, type(None)))
#: Record → its fields.
FIELDS: dict[type, tuple[str, ...]] = {
    record: tuple([field.name for field in fields(record)])
    for record in (
        *(Form, Whole, Turned, Reread, Torch, Address, Allocate, Reuse, Launch, Result, Into, Invoke, Release),
        *(Wait, Piece, Block, Arena, Input, Read, Effect, Failure, Plan, Bits),
    )
}
