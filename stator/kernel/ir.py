"""The kernel IR. Its printed form is a subset of Python's grammar; `text` prints it and `parse` reads it back.

    function  = def NAME(parameter, …): block
    parameter = p0: In[f32, 128]                   memory of so many elements; Out is written, InOut both
              | n0: Size[low, high, hint]           a number that each launch gives; None where it has no bound
    statement = v: dtype = op(operand, …)           an operator of `scalar.OPS`, or cast, bitcast, uniform, normal
              |                                     (and, or and not are written and_, or_, not_)
              | v: dtype = index(position)          a position as a number
              | v: dtype = p0[position]             a load
              | v: dtype = p0[position] if m else 0   the same, that reads only where m holds
              | v: dtype = within(operand, extent)  an integer that is proved to lie in 0 … extent-1
              | v: dtype = within(operand, extent, number, m)   one that is checked where m holds: 0 where it does not
              |                                     lie there, and the kernel fails with that number
              | v: Var[dtype] = operand             a variable: an accumulator, the state of a scan
              | v = operand | v = op(operand, …)    an assignment to one
              | p0[position] = operand              a store; no other iteration writes there
              | mode(p0[position], operand)         a store in another mode of `collision.MODES`
              | for x0 in range(extent): block      iterations in order
              | for x0 in parallel(extent): block   in any order: they write different places
              | for x0 in range(16*x1, min(16*x1 + 16, extent)): block      a piece of such a loop
    operand   = v | number | dtype(number)          a plain number has the dtype of what is defined
    position  = integers, axes, symbols and what `within` gives, with + - * // %

A name is defined once in a function and known to the end of its block. An operator rounds to the dtype that it
defines. Statements run in the order in which they stand.
Neighbours: `serial` makes functions from kernels, `rewrite` changes them, `verify` checks them, `evaluate` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, TypeAlias
from zlib import crc32

from stator.loop.index import NO_AXES, Axis, Index
from stator.loop.kernel import Param
from stator.loop.scalar import FLOATS, Number
from stator.sizes import Extent, Symbol


@dataclass(frozen=True, slots=True)
class Value:
    """A name and its dtype. An integer may stand in an index: to the index algebra it is what is loaded at run time."""

    name: str
    dtype: str

    @property
    def digest(self) -> int:
        return crc32(f"{self.name}:{self.dtype}".encode())

    @property
    def axes(self) -> frozenset[Axis]:
        return NO_AXES

    def substitute(self, mapping: Mapping[Axis, Index]) -> Value:
        """Itself: where it is defined, axes are replaced."""
        return self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A number of a dtype. One NaN equals another; a zero does not equal one of the other sign."""

    number: Number = field(compare=False)
    dtype: str
    _bits: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        number = self.number
        bits = str(number) if self.dtype not in FLOATS else "nan" if isnan(number) else float(number).hex()
        object.__setattr__(self, "_bits", bits)


Operand: TypeAlias = Value | Literal


@dataclass(frozen=True, slots=True)
class Let:
    """`target = op(*args)`."""

    target: Value
    op: str
    args: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """`target = index(index)`."""

    target: Value
    index: Index


@dataclass(frozen=True, slots=True)
class Load:
    """`target = memory[index]`, where the mask holds; 0 elsewhere."""

    target: Value
    memory: str
    index: Index
    mask: Operand | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """`target = value`, an integer in 0 … bound-1: proved if `number` is 0, else checked where the mask holds."""

    target: Value
    value: Operand
    bound: Extent
    number: int = 0
    mask: Operand | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """A variable, and what it starts from."""

    target: Value
    start: Operand


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = op(*args)` for a variable; the op "copy" is its operand."""

    target: Value
    op: str
    args: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """`memory[index] = value`, or what a mode of `collision.MODES` makes of what is there and the value."""

    memory: str
    index: Index
    value: Operand
    mode: str = "store"


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an axis from `step * axis` on, `step` points long or to its end."""

    axis: Axis
    step: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for each point of an axis, or of a piece of it, in a way of `KINDS`."""

    axis: Axis
    kind: str
    body: tuple[Statement, ...]
    piece: Piece | None = None


Statement: TypeAlias = Let | Position | Load | Within | Declare | Assign | Store | Loop
Block: TypeAlias = tuple[Statement, ...]
KINDS = ("range", "parallel")
#: Operators beside those of `scalar.OPS`: the operand in another dtype, its bits, Philox of (seed, counter).
SPECIAL = ("cast", "bitcast", "uniform", "normal")


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel. `params` and `symbols` are those of the `Kernel` that it runs."""

    name: str
    params: tuple[Param, ...]
    symbols: tuple[Symbol, ...]
    body: Block

    @property
    def checks(self) -> dict[int, Extent]:
        """The number of each check, and the bound that it holds integers to."""
        return {s.number: s.bound for s in walk(self.body) if isinstance(s, Within) and s.number}


def walk(block: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, those in loops after the loop."""
    for statement in block:
        yield statement
        if isinstance(statement, Loop):
            yield from walk(statement.body)


def operands(statement: Statement) -> tuple[Any, ...]:
    """The operands of a statement, what its index loads among them."""
    match statement:
        case Let(args=args) | Assign(args=args):
            return args
        case Load(index=index, mask=mask):
            return (*_loaded(index), *([mask] if mask is not None else []))
        case Within(value=value, mask=mask):
            return (value, mask) if mask is not None else (value,)
        case Declare(start=start):
            return (start,)
        case Store(index=index, value=value):
            return (*_loaded(index), value)
        case Position(index=index):
            return _loaded(index)
    return ()


def _loaded(index: Index) -> tuple[Any, ...]:
    return tuple([atom.expr for atom in index.indirects()])
