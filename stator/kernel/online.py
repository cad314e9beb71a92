"""Reductions that need what another one over the same row has found, in the loop of that one: a row is read once less.

Both rewrites look for two loops over one axis, of which the second adds up a function of `t - c`: `t` is what the first
one reduces, `c` is any number known between them, such as the greatest `t` or the mean.
Neighbours: `rewrite` has the others; `strategies` asks for these where a row does not stay in registers or a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from stator.base.records import dataclass
from stator.kernel import ir
from stator.kernel.rewrite import replaced
from stator.loop.extent import less
from stator.loop.scalar import identity

#: What computes a value of a row, without an effect.
_Plain: TypeAlias = ir.Let | ir.Position | ir.Load | ir.Within
_PLAIN = (ir.Let, ir.Position, ir.Load, ir.Within)
_FLOATS = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two loops of a block, by their places: the second adds `op(taken - shift)` to a variable."""

    first: int
    second: int
    taker: ir.Assign  # of the first loop
    shift: ir.Operand
    total: ir.Value

    def between(self, block: ir.Block) -> ir.Block:
        """What stands between the loops."""
        return block[self.first + 1 : self.second]


def online_softmax(function: ir.Function) -> ir.Function:
    """The sum of exponentials in the loop that finds the greatest.

    for r: a = maximum(a, t)             for r: a, s = exp_sum(t)
    for r: q = add(q, exp(t - c))   -->  q = s * exp(a - c)

    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    return _Online(function, "maximum", "exp").run()


def welford(function: ir.Function) -> ir.Function:
    """The sum of squared differences in the loop that adds up.

    for r: a = add(a, t)                 for r: a = add(a, t); n, m, s = welford(t)
    for r: q = add(q, (t - c)**2)   -->  q = s + n * (m - c)**2

    Welford, "Note on a method for calculating corrected sums of squares and products", 1962.
    """
    return _Online(function, "add", "square").run()


class _Online:
    """One of the rewrites: loops that reduce by `fold`, and then by sums of `term`."""

    def __init__(self, function: ir.Function, fold: str, term: str) -> None:
        self.function, self.fold, self.term = function, fold, term
        self.names = {s.target.name for s in ir.walk(function.body) if isinstance(s, (*_PLAIN, ir.Declare))}

    def run(self) -> ir.Function:
        return replace(self.function, body=self.block(self.function.body))

    def block(self, block: ir.Block) -> ir.Block:
        while (pair := self.pair(block)) is not None:
            block = self.joined(block, pair)
        return tuple([replace(s, body=self.block(s.body)) if isinstance(s, ir.Loop) else s for s in block])

    def pair(self, block: ir.Block) -> _Pair | None:
        loops = [(i, statement) for i, statement in enumerate(block) if isinstance(statement, ir.Loop)]
        for (i, first), (j, second) in pairwise(loops):
            known = less(0, first.axis.size)  # of an empty row there is no greatest, and no mean
            alike = replace(first, body=()) == replace(second, body=())
            if known and alike and (found := self.matched(first.body, second.body)) is not None:
                made = _Pair(i, j, *found)
                if _starts(block[:j], made.total) is not None and not any(
                    isinstance(s, ir.Store) or made.total in (*ir.operands(s), *ir.targets(s))
                    for s in made.between(block)
                    if not isinstance(s, ir.Declare)
                ):
                    return made
        return None

    def matched(self, first: ir.Block, second: ir.Block) -> tuple[ir.Assign, ir.Operand, ir.Value] | None:
        """What the loops have in common: what takes `t`, the shift, and the second loop's variable."""
        *before, last = second
        if not all(isinstance(s, _PLAIN) for s in before) or any(isinstance(s, ir.Loop | ir.Store) for s in first):
            return None
        match last:
            case ir.Assign(target, "add", (taken, ir.Value() as added)) if taken == target and target.dtype in _FLOATS:
                pass
            case _:
                return None
        made = {s.target: s for s in before if isinstance(s, _PLAIN)}
        match self.term, made.get(added):
            case "exp", ir.Let(op="exp", args=(ir.Value() as difference,)):
                pass
            case "square", ir.Let(op="mul", args=(ir.Value() as difference, same)) if same == difference:
                pass
            case _:
                return None
        match made.get(difference):
            case ir.Let(op="sub", args=(ir.Value() as term, shift)) if term in made and shift not in made:
                known = _common(first, before).get(term)
                for statement in first:
                    match statement:
                        case ir.Assign(op=self.fold, args=(_, value)) if value == known:
                            return statement, shift, target
        return None

    def joined(self, block: ir.Block, pair: _Pair) -> ir.Block:
        """The block with one loop for both."""
        first, taker, total = block[pair.first], pair.taker, pair.total
        assert isinstance(first, ir.Loop)
        dtype, given = total.dtype, taker.args[1]
        fresh = [self.fresh("a", dtype) for _ in range(1 if self.term == "exp" else 3)]
        starts = [ir.Declare(value, ir.Literal(identity("sum", dtype), dtype)) for value in fresh]
        if self.term == "exp":
            body = replaced(first.body, taker, ir.Online((taker.target, *fresh), "exp_sum", given))
        else:
            body = replaced(first.body, taker, taker, ir.Online(tuple(fresh), "welford", given))
        loop, begin = replace(first, body=body), _starts(block, total)
        before, between = ([s for s in part if s is not begin] for part in (block[: pair.first], pair.between(block)))
        after = self.result(fresh, taker.target, pair.shift, total)
        return (*before, *starts, loop, *between, *after, *block[pair.second + 1 :])

    def result(
        self, states: Sequence[ir.Value], best: ir.Value, shift: ir.Operand, total: ir.Value
    ) -> list[ir.Statement]:
        """The second loop's sum, of what the first one has found."""
        made: list[ir.Statement] = []

        def let(op: str, *args: ir.Operand, target: ir.Value | None = None) -> ir.Value:
            target = target or self.fresh("t", total.dtype)
            made.append(ir.Let(target, op, args))
            return target

        match states:
            case [sums]:
                let("mul", sums, let("exp", let("sub", best, shift)), target=total)
            case [count, mean, squares]:
                apart = let("sub", mean, shift)
                let("add", squares, let("mul", count, let("mul", apart, apart)), target=total)
        return made

    def fresh(self, letter: str, dtype: str) -> ir.Value:
        number = len(self.names)
        while f"{letter}{number}" in self.names:
            number += 1
        self.names.add(f"{letter}{number}")
        return ir.Value(f"{letter}{number}", dtype)


def _common(first: Sequence[ir.Statement], second: Sequence[ir.Statement]) -> dict[ir.Value, ir.Value]:
    """The values of the second block that the first one computes too, and as what."""
    known = {_meaning(s, {}): s.target for s in first if isinstance(s, _PLAIN)}
    found: dict[ir.Value, ir.Value] = {}
    for statement in second:
        assert isinstance(statement, _PLAIN)
        same = known.get(_meaning(statement, found))
        if same is not None:
            found[statement.target] = same
    return found


def _meaning(statement: _Plain, names: Mapping[ir.Value, ir.Value]) -> ir.Statement:
    """A statement of other operands, without the name of what it defines."""
    found: ir.Statement = ir.renamed(statement, {**names, statement.target: replace(statement.target, name="")})
    return found


def _starts(block: ir.Block, total: ir.Value) -> ir.Declare | None:
    """Where a block declares a sum that starts from nothing."""
    for statement in block:
        match statement:
            case ir.Declare(target, ir.Literal(number)) if target == total and number == 0:
                return statement
    return None
