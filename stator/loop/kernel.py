"""Kernels and schedules: what code generation reads.

A `Kernel` has no names of its own: parameters are p0, p1, …, outer axes x0, x1, …, reduce axes r0, r1, …, and equal
kernels are one object. Its meaning, for every point of the outer axes:
  - for level = 0, 1, …: one loop over the reduce axes evaluates the bodies of the `reduce` nodes of that level (a
    node's level is how many reductions are nested in its body);
  - a `scan` node has a value at each point of the reduce axes, in whatever loop needs it: that of its body so far;
  - stores in "inner" space happen once for each point of the reduce axes, at their own level or later; stores
    in "outer" space happen once, after the reductions they need.
Within one iteration all loads happen before the first store, and a load sees what was in memory before the kernel ran;
`schedule` makes only kernels where both are true by construction if the values of an iteration are computed first.
The last axis of `axes` is the one to vectorise where there is a choice. Sizes may be symbolic: symbols are n0, n1, …,
and each launch says what they are. Kernels that differ in the hints of their symbols alone are one.
Neighbours: `schedule` makes them, `codegen` prints them as C++ and Triton, `verify` checks them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from stator.base.effects import Effect
from stator.loop import tables, text
from stator.loop.attention import Attention
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Extern, Number, Operator, Output
from stator.sizes import Extent, Symbol

if TYPE_CHECKING:
    from stator.loop.apart import Apart


@dataclass(frozen=True, slots=True)
class Param:
    """A pointer argument; role is "in", "out" or "inout" (read and written); `numel` elements may be touched."""

    name: str
    dtype: str
    role: str
    numel: Extent


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[index] = value`, or what a mode of `collision.MODES` makes of the value there and this one.

    Where iterations write one address, their order is that of the colliding axes; that of a sum is free.
    """

    buffer: str
    index: Index
    value: Expr
    space: str
    mode: str = "store"

    @property
    def roots(self) -> list[Expr]:
        """The value, and what the index loads through."""
        return [self.value, *[atom.expr for atom in self.index.indirects()]]  # type: ignore[list-item]

    @property
    def level(self) -> int:
        """How many levels of reductions must be done before it."""
        return max([root.level for root in self.roots])


@dataclass(frozen=True, eq=False)
class Kernel:
    """One fused nest of loops, or what `attention` says, without any. Make it with `kernel()`, which interns."""

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    stores: tuple[Store, ...]
    params: tuple[Param, ...]
    symbols: tuple[Symbol, ...] = ()
    attention: Attention | None = None

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every expression node once, operands first."""
        return tuple(postorder([root for store in self.stores for root in store.roots]))

    @cached_property
    def inner(self) -> frozenset[Expr]:
        """The nodes whose value differs along the reduce axes; all others belong to the outer space."""
        reduced = frozenset(self.reduce_axes)
        found: set[Expr] = set()
        for node in self.nodes:
            if node.op == "reduce":
                continue
            if node.op == "scan":
                found.add(node)
            elif node.op in ("load", "index"):
                position: Index = node.attr[1] if node.op == "load" else node.attr
                if _reaches(position, reduced, found):
                    found.add(node)
            elif any(arg in found for arg in node.args):
                found.add(node)
        return frozenset(found)

    def is_inner(self, index: Index) -> bool:
        """Whether an index differs along the reduce axes."""
        return _reaches(index, frozenset(self.reduce_axes), self.inner)

    @property
    def levels(self) -> int:
        """How many loops over the reduce axes it has for reductions alone."""
        return max((store.level for store in self.stores), default=0)

    @property
    def outer_numel(self) -> Extent:
        return prod(axis.size for axis in self.axes)

    @property
    def reduce_numel(self) -> Extent:
        return prod(axis.size for axis in self.reduce_axes)

    def text(self) -> str:
        """The canonical print."""
        return text.kernel_text(self)


def _reaches(index: Index, reduced: frozenset[Axis], inner: Container[Expr]) -> bool:
    """Whether an index differs along the reduce axes, given the expressions that do."""
    for atom, _ in index.terms:
        if isinstance(atom, Axis):
            if atom in reduced:
                return True
        elif hasattr(atom, "expr"):
            if atom.expr in inner:
                return True
        elif _reaches(atom.inner, reduced, inner):
            return True
    return False


_KERNELS: dict[tuple[object, ...], Kernel] = tables.table()


def kernel(
    axes: tuple[Axis, ...],
    reduce_axes: tuple[Axis, ...],
    stores: tuple[Store, ...],
    params: tuple[Param, ...],
    symbols: tuple[Symbol, ...] = (),
    attention: Attention | None = None,
) -> Kernel:
    """The one kernel with these parts."""
    key = (axes, reduce_axes, stores, params, attention)
    found = _KERNELS.get(key)
    if found is None:
        found = Kernel(axes, reduce_axes, stores, params, symbols, attention)
        if symbols:  # the text has no hints; what it does not tell either is in the rest of the key
            ranges = tuple([(symbol.low, symbol.high) for symbol in symbols])
            found = _KERNELS.setdefault((found.text(), ranges, *[node.dtype for node in found.nodes]), found)
        found = _KERNELS.setdefault(key, found)
    return found


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address that a param is bound to: a buffer, and a constant offset in elements."""

    buffer: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.buffer}+{self.offset}" if self.offset else self.buffer


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Run a kernel; args are in the order of its params, `sizes` in that of its symbols.

    A buffer may be bound more than once where it is only read. `operators`: what the user's program calls what the
    kernel computes here.
    """

    kernel: Kernel
    args: tuple[Pointer, ...]
    sizes: tuple[Extent, ...] = ()
    operators: tuple[Operator, ...] = ()

    def text(self, names: Mapping[Kernel, str]) -> str:
        """One line, the kernel by its name."""
        return f"{names[self.kernel]}({', '.join(map(str, (*self.args, *self.sizes)))})"


#: How many characters of operators the name of a kernel has at most.
MOST_OF_A_NAME = 60


def kernel_name(number: int, operators: Sequence[str] = ()) -> str:
    """The name of a kernel: operators, as far as they fit, and its number."""
    name = f"k{number}"
    for operator in reversed(operators):
        if len(operator) + len(name) > MOST_OF_A_NAME:
            break
        name = f"{operator}_{name}"
    return name


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Run an extern."""

    extern: Extern

    def text(self, names: Mapping[Kernel, str]) -> str:
        """One line."""
        return text.extern_text(self.extern)


Step: TypeAlias = Launch | Call


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of the arena: the buffers that take it one after another, and between which steps it is in use."""

    names: tuple[str, ...]
    nbytes: Extent
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """Where every buffer that is not an input lives.

    offsets: buffers in the arena, by byte offset. allocated: buffers with storage of their own, fresh in each call
    (outputs). returned: buffers that an extern without an out= form makes itself. aliases: (buffer, donor) pairs where
    a step may write its result over an operand that dies there; both have the same offset. blocks: what the arena is
    shared among; where a size is symbolic, offsets are for its hint, and blocks are placed again for each value.
    """

    arena_bytes: int
    offsets: dict[str, int]
    allocated: tuple[str, ...]
    returned: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """What a graph does when one of its steps fails, by the numbers of steps."""

    #: Memory of the caller that the first `unsure` steps write: put back if one of them fails.
    kept: tuple[str, ...] = ()
    unsure: int = 0
    #: From this step on something is written for good; what fails then says so. None if nothing can fail there.
    spoiled: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A program ready for code generation: distinct kernels, steps in order, and memory."""

    name: str
    device: str
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    buffers: dict[str, Buffer]
    memory: MemoryPlan
    inputs: tuple[Buffer, ...]
    outputs: tuple[Output, ...]
    mutated: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    failure: Failure = Failure()
    reasons: tuple[str, ...] = ()  #: why each kernel is one, by its first launch
    #: What was chosen for buffers that do not lie as eager has them, a line each.
    layouts: tuple[str, ...] = ()
    #: The effects of the program in its order, with the memory of the caller that is written; by step, their numbers.
    effects: tuple[tuple[Effect, str], ...] = ()
    acts: tuple[tuple[int, ...], ...] = ()
    #: Which device of its kind; None for the one that is current when it runs.
    device_number: int | None = None
    #: Tells why steps are not one kernel.
    apart: Apart | None = None

    @property
    def place(self) -> str:
        """The device as PyTorch writes it, `cuda:1`."""
        return self.device if self.device_number is None else f"{self.device}:{self.device_number}"

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each kernel, by what its first launch computes: `gelu_add_k3`."""
        first: dict[Kernel, tuple[Operator, ...]] = {}
        for step in self.steps:
            if isinstance(step, Launch):
                first.setdefault(step.kernel, step.operators)
        called = [tuple(dict.fromkeys([operator.name for operator in first.get(k, ())])) for k in self.kernels]
        return tuple([kernel_name(i, operators) for i, operators in enumerate(called)])

    def text(self) -> str:
        """Kernels, steps and memory."""
        return text.schedule_text(self)
