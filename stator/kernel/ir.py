"""The kernel IR. Its printed form is a subset of Python's grammar; `text` prints it and `parse` reads it back.

    function  = def NAME(parameter, …): block       with `-> Threads[number]`, on so many threads at most, or on a GPU
                                                    in blocks of so many
    parameter = p0: In[f32, 128]                   memory of so many elements; Out is written, InOut both
              | n0: Size[low, high, hint]           a number that each launch gives; None where it has no bound. As a
              |                                     first line of the function, with ` = extent`: one made of these
    statement = v: dtype = op(operand, …)           an operator of `scalar.OPS`, or cast, bitcast, uniform, normal
              |                                     (and, or and not are written and_, or_, not_)
              | v: dtype = index(position)          a position as a number
              | v: dtype = p0[position]             a load
              | v: dtype = p0[position] if m else 0   the same, that reads only where m holds
              | v: dtype = within(operand, extent)  an integer that is proved to lie in 0 … extent-1
              | v: dtype = within(operand, extent, number, m)   one that is checked where m holds: 0 where it does not
              |                                     lie there, and the kernel fails with that number; 0 if it is proved
              | v: Var[dtype] = operand             a variable: an accumulator, the state of a scan
              | v = operand | v = op(operand, …)    an assignment to one
              | flush(v)                            what a sum has taken goes to a total of its own: v is what it was,
              |                                     but for what rounding would have lost
              | v, v = best(gt, operand, operand)   the greatest (lt: least) of the operands so far and the lowest
              |                                     position of it; the first NaN is better than any number.
              |                                     `best_in_turn`: positions come in order
              | v, v = exp_sum(operand)             the greatest operand so far, and the sum of exp(operand - it)
              | v, v, v = welford(operand)          how many operands, their mean, and how far they are from it, squared
              | v: dtype = scan(sum, v, operand)    the next step of a scan, whose state so far is a variable: loops
              |                                     around it go in order, those of lanes too
              | s0: Scratch[dtype, number]          memory of so many elements, which this block alone knows
              | turn(s0[64], p0[position], x1, 16*x2, extent, x0, 64*x3, extent)     s0[64*i + j] = p0[position]
              |                                     for a piece of x1 and one of x0; i and j count from their beginnings
              | multiply(s0[32], p0[position], p1[position], x0, 32*x3, extent, x1, 32*x4, extent, r0, extent)
              |                                     s0[32*i + j] = the sum of p0[position]*p1[position] over all r0, for
              |                                     a piece of x0 and one of x1; p1 lies in pairs (`base/pairs.py`)
              | p0[position] = operand              a store; no other iteration writes there
              | stream(p0[position], operand)       the same, past the caches where lanes store side by side
              | mode(p0[position], operand)         a store in another mode of `collision.MODES`
              | atomic_mode(p0[position], operand)  the same, where parallel iterations may meet at one place
              | for x0 in range(extent): block      iterations in order
              | for x0 in parallel(extent): block   in any order: they write different places
              | for x0 in lanes(16, extent): block  so many at once; lanes(16*2, …) twice as many. A variable from
              |                                     outside of it only takes what lanes add: none of them looks at it
              | for x0 in whole(16*4, extent): block    where 64 are left the first 16 of them, at once: what the others
              |                                     do stands in the block too
              | for x0 in rest(16*4, extent): block     what is left over by that, 16 at a time
              | for x0 in range(16*x1, min(16*x1 + 16, extent)): block      a piece of such a loop
    operand   = v | number | dtype(number)          a plain number has the dtype of what is defined
    position  = integers, axes, symbols and what `within` gives, with + - * // %

A name is defined once in a function and known to the end of its block. An operator rounds to the dtype that it
defines. Statements run in the order in which they stand.
Neighbours: `serial` makes functions from kernels, `rewrite` changes them, `verify` checks them, `evaluate` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from types import MappingProxyType
from typing import Any, TypeAlias, get_args
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
    def constant(self) -> int | None:
        return None

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
    """`target = value`, an integer in 0 … bound-1 where the mask holds: proved if `number` is 0, else checked."""

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
    """`memory[index] = value`, or what a mode of `collision.MODES` makes of what is there and the value.

    `stream` is a hint: caches need not keep what is stored.
    """

    memory: str
    index: Index
    value: Operand
    mode: str = "store"
    atomic: bool = False
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Flush:
    """A sum's recent terms go to its total."""

    target: Value


@dataclass(frozen=True, slots=True)
class Best:
    """`best, position = value, here` where the value is better than all so far (`op`), or as good and further left."""

    best: Value
    position: Value
    op: str
    value: Operand
    here: Operand
    in_turn: bool = False


@dataclass(frozen=True, slots=True)
class Online:
    """Variables that take a value together, as `op` of `ONLINE` says."""

    states: tuple[Value, ...]
    op: str
    value: Operand


@dataclass(frozen=True, slots=True)
class Scan:
    """`target = state = op(state, value)`, of `scalar.SCANS`."""

    target: Value
    op: str
    state: Value
    value: Operand


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of its own for a block."""

    name: str
    dtype: str
    numel: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an axis from `step * axis` on, `step` points long or to its end."""

    axis: Axis
    step: Extent


@dataclass(frozen=True, slots=True)
class Turn:
    """`scratch[width*i + j] = memory[index]` for a block of two axes, `rows` and `columns`, each with its piece."""

    scratch: str
    width: int
    memory: str
    index: Index
    rows: tuple[Axis, Piece]
    columns: tuple[Axis, Piece]


@dataclass(frozen=True, slots=True)
class Multiply:
    """`scratch[width*i + j] = sum(left[at] * right[to])` over all terms, for a block of rows by columns, in float32.

    Both factors are of bfloat16; `right` lies in pairs. With `ahead` its next columns are prefetched.
    """

    scratch: str
    width: int
    left: str
    at: Index
    right: str
    to: Index
    rows: tuple[Axis, Piece]
    columns: tuple[Axis, Piece]
    terms: Axis
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for each point of an axis, or of a piece of it, in a way of `KINDS`; `lanes * unroll` of them at once."""

    axis: Axis
    kind: str
    body: tuple[Statement, ...]
    piece: Piece | None = None
    lanes: int = 0
    unroll: int = 1


Plain: TypeAlias = (
    Let | Position | Load | Within | Declare | Assign | Flush | Best | Online | Scan | Scratch | Turn | Multiply | Store
)
Statement: TypeAlias = Plain | Loop
Block: TypeAlias = tuple[Statement, ...]
KINDS = ("range", "parallel", "lanes", "whole", "rest")
#: What an accumulator takes the next value by, in any order → which operand it is itself.
FOLDING = {"add": 0, "mul": 0, "maximum": 0, "minimum": 0, "or": 0, "and": 0, "fma": 2}
#: What variables take together, and how many they are.
ONLINE = {"exp_sum": 2, "welford": 3}
#: Operators beside those of `scalar.OPS`: the operand in another dtype, its bits, Philox of (seed, counter).
SPECIAL = ("cast", "bitcast", "uniform", "normal")


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel. `params` and `symbols` are those of the `Kernel` that it runs.

    `named` are numbers made of the symbols, each of those before it; `threads` is what the work is worth.
    """

    name: str
    params: tuple[Param, ...]
    symbols: tuple[Symbol, ...]
    body: Block
    named: tuple[tuple[Symbol, Extent], ...] = ()
    threads: Extent = 1

    @property
    def checks(self) -> dict[int, Extent]:
        """The number of each check, and the bound that it holds integers to."""
        return {s.number: s.bound for s in walk(self.body) if isinstance(s, Within) and s.number}


def walk(block: Sequence[Statement]) -> list[Statement]:
    """Every statement, those in loops after the loop."""
    found: list[Statement] = []
    for statement in block:
        found.append(statement)
        if isinstance(statement, Loop):
            found += walk(statement.body)
    return found


def _fields(*names: str) -> dict[type, tuple[str, ...]]:
    return {kind: tuple([name for name in names if name in kind.__slots__]) for kind in get_args(Statement)}


_DEFINED = _fields("target", "best", "position", "states", "state")
_READ = _fields("args", "start", "index", "value", "here", "mask")


def targets(statement: Statement) -> tuple[Value, ...]:
    """What a statement defines or changes."""
    return _held(statement, _DEFINED)


def operands(statement: Statement) -> tuple[Any, ...]:
    """The operands of a statement, what its index loads among them."""
    return _held(statement, _READ)


def _held(statement: Statement, fields: Mapping[type, Sequence[str]]) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in fields[type(statement)]:
        match getattr(statement, name):
            case tuple() as items:
                found += items
            case Index() as index:
                found += [atom.expr for atom in index.indirects()]
            case Value() | Literal() as item:
                found.append(item)
    return tuple(found)


def assigned(block: Sequence[Statement]) -> set[Value]:
    """The variables that statements assign to."""
    return {target for s in walk(block) if isinstance(s, Assign | Best | Online) for target in targets(s)}


def renamed(statement: Plain, names: Mapping[Value, Value], points: Mapping[Axis, Index] = MappingProxyType({})) -> Any:
    """A statement that is no loop, of other values, at other positions."""

    def change(item: Any) -> Any:
        match item:
            case Value():
                return names.get(item, item)
            case Index():
                return item.substitute(points, change)
            case tuple():
                return tuple(map(change, item))
        return item

    return type(statement)(*[change(getattr(statement, name)) for name in statement.__slots__])
