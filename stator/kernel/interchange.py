"""Reductions down columns, some rows of all columns at a time: the loop over rows goes outside of the one along them.

A thread that goes down a few columns reads a short part of each row, which lies in another page of memory than the one
before: neither is what follows fetched ahead, nor do translations of addresses serve for more. Where some rows are read
along all columns instead, what columns have come to lies in scratch between them. Neighbours: `rewrite` has the other
steps, `decisions` says when this one pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stator.kernel import ir
from stator.kernel.rewrite import ANY_LENGTH, PART, named, renamed, split
from stator.loop.index import Axis, Index
from stator.loop.scalar import FLOATS


def interchange(function: ir.Function, axis: Axis) -> ir.Function:
    """Reductions inside of loops of lanes along an axis, or pieces of it, take some iterations for all lanes in turn.

    for x in lanes(16, n): A; a: Var = 0; for r in range(m): {B; a = op(a, t)}; C
      -->  s0: Scratch[n]
           for x in lanes(16, n): s0[x] = 0
           for r_16 in range(m / 16): for x in lanes(16, n):
               A; a: Var = 0; for r in range(16*r_16, …): {B; a = op(a, t)}; s0[x] = op(s0[x], a)
           for x in lanes(16, n): A; a = s0[x]; C

    Sums of floats have memory for what rounding loses too, as those that `flush_sums` makes.
    """

    def made(block: ir.Block) -> ir.Block:
        body: list[ir.Statement] = []
        for s in block:
            if isinstance(s, ir.Loop) and s.axis is axis and s.lanes:
                body += _interchanged(s)
            elif isinstance(s, ir.Loop):
                body.append(replace(s, body=made(s.body)))
            else:
                body.append(s)
        return tuple(body)

    return replace(function, body=made(function.body))


def _interchanged(loop: ir.Loop) -> ir.Block:
    at = [isinstance(s, ir.Loop) for s in loop.body]
    assert at.count(True) == 1, "one loop reduces"
    first, reduction, last = loop.body[: at.index(True)], loop.body[at.index(True)], loop.body[at.index(True) + 1 :]
    assert isinstance(reduction, ir.Loop)
    around, pushed, inner = _cut(reduction)
    starts = {s.target: s.start for s in first if isinstance(s, ir.Declare)}
    before = tuple([s for s in first if not isinstance(s, ir.Declare)])
    found = [_Column(s, starts[s.target], loop) for s in _assigns(inner)]
    for i, column in enumerate(found):
        column.names = [f"s{2 * i}", f"s{2 * i + 1}"][: 1 + column.rounds]
    scratch = [s for column in found for s in column.scratch()]
    begin = replace(loop, body=tuple([s for column in found for s in column.begin()]), unroll=1)
    taken = tuple([s for column in found for s in column.take()])
    several: ir.Statement = replace(loop, body=(*first, *pushed, inner, *taken))
    for outer in reversed(around):
        several = replace(outer, body=(several,))
    results = {column.target: column.total for column in found}
    again = named(before, "last")
    end = renamed((*before, *last), {**again, **results}, {})
    loads = tuple([column.load() for column in found])
    return (*scratch, begin, several, replace(loop, body=(*loads, *end), unroll=1))


def _cut(loop: ir.Loop) -> tuple[list[ir.Loop], list[ir.Plain], ir.Loop]:
    """The loops that go outside, the statements in them that stay inside, and the loop there: its sums are short."""
    path = [loop]
    while inner := [s for s in path[-1].body if isinstance(s, ir.Loop)]:
        (only,) = inner
        assert path[-1].body[-1] is only, "nothing follows a loop that reduces"
        path.append(only)
    count, depth = 1, len(path) - 1
    while depth > 0 and count * _length(path[depth]) <= 2 * PART:
        count *= _length(path[depth])
        depth -= 1
    around, inside = path[: depth + 1], path[depth + 1 :]
    if count < PART:
        outer = split(path[depth], PART // count)
        (first,) = outer.body
        assert isinstance(first, ir.Loop)
        around, inside = [*path[:depth], outer], [first]
    pushed = [s for level in path[: len(around) - (count < PART)] for s in level.body if not isinstance(s, ir.Loop)]
    return around, pushed, inside[0]


def _length(loop: ir.Loop) -> int:
    return loop.axis.size if type(loop.axis.size) is int else ANY_LENGTH


def _assigns(loop: ir.Loop) -> list[ir.Assign]:
    """What a loop adds to variables, in the order in which they stand."""
    return [s for s in ir.walk(loop.body) if isinstance(s, ir.Assign)]


@dataclass(slots=True)
class _Column:
    """One reduction: its variable takes `PART` values, and scratch takes that."""

    assign: ir.Assign
    start: ir.Operand
    loop: ir.Loop
    names: Sequence[str] = ()

    @property
    def target(self) -> ir.Value:
        return self.assign.target

    @property
    def rounds(self) -> bool:
        """Whether what rounding loses is kept."""
        return self.assign.op == "add" and self.target.dtype in FLOATS

    @property
    def total(self) -> ir.Value:
        return self.value("total")

    @property
    def place(self) -> Index:
        """The place of a lane in scratch."""
        piece, axis = self.loop.piece, self.loop.axis
        return axis.index - piece.axis.index * piece.step if piece is not None else axis.index

    def value(self, suffix: str) -> ir.Value:
        return ir.Value(f"{self.target.name}_{suffix}", self.target.dtype)

    def scratch(self) -> list[ir.Scratch]:
        numel = self.loop.piece.step if self.loop.piece is not None else self.loop.axis.size
        assert type(numel) is int, "scratch has a known size"
        return [ir.Scratch(name, self.target.dtype, numel) for name in self.names]

    def begin(self) -> list[ir.Store]:
        nothing = ir.Literal(0.0, self.target.dtype)
        return [ir.Store(name, self.place, s) for name, s in zip(self.names, (self.start, nothing), strict=False)]

    def load(self) -> ir.Load:
        return ir.Load(self.total, self.names[0], self.place)

    def take(self) -> list[ir.Statement]:
        """Scratch takes what the variable has come to (what overflows loses nothing)."""
        held, new = self.value("held"), self.value("new")
        if not self.rounds:
            both = (held, self.target)
            return [
                ir.Load(held, self.names[0], self.place),
                ir.Let(new, self.assign.op, both),
                ir.Store(self.names[0], self.place, new),
            ]
        lost, term, moved, error, none, kept = map(self.value, ("lost", "term", "moved", "error", "none", "kept"))
        finite, zero = ir.Value(f"{self.target.name}_finite", "bool"), ir.Literal(0.0, self.target.dtype)
        return [
            ir.Load(held, self.names[0], self.place),
            ir.Load(lost, self.names[1], self.place),
            ir.Let(term, "sub", (self.target, lost)),
            ir.Let(new, "add", (held, term)),
            ir.Let(moved, "sub", (new, held)),
            ir.Let(error, "sub", (moved, term)),
            ir.Let(none, "sub", (error, error)),
            ir.Let(finite, "eq", (none, zero)),
            ir.Let(kept, "where", (finite, error, zero)),
            ir.Store(self.names[0], self.place, new),
            ir.Store(self.names[1], self.place, kept),
        ]
