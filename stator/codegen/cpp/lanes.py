"""What is a vector: facts of a function about its loops of lanes, from its statements alone.

A value varies if lanes differ in it. A variable from outside of a loop of lanes to which that adds has a part for each
lane, which are folded after the loop. Neighbour: `printer`, which writes what this says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stator.kernel.facts import lane_stride
from stator.kernel.ir import (
    Best,
    Block,
    Declare,
    Flush,
    Function,
    Load,
    Loop,
    Position,
    Scan,
    Statement,
    Store,
    Value,
    Within,
    assigned,
    operands,
    walk,
)
from stator.loop.index import Index
from stator.sizes import Extent


@dataclass(slots=True)
class Lanes:
    """The facts of one function.

    `folded` are the variables with parts, each with the loop that adds to them, `scanned` those that a scan along lanes
    changes; `best` says where the best values are.
    """

    varying: set[Value] = field(default_factory=set)
    folded: dict[Value, Loop] = field(default_factory=dict)
    scanned: dict[Value, Loop] = field(default_factory=dict)
    flushed: set[Value] = field(default_factory=set)
    best: dict[Value, Best] = field(default_factory=dict)

    @staticmethod
    def of(function: Function) -> Lanes:
        """Read a function; again as long as variables are found to vary, which others are made of."""
        found = Lanes()
        for statement in walk(function.body):
            if isinstance(statement, Flush):
                found.flushed.add(statement.target)
            elif isinstance(statement, Best):
                found.best[statement.best] = statement
        for loop in walk(function.body):
            if isinstance(loop, Loop) and loop.kind == "lanes":
                own = {s.target for s in walk(loop.body) if isinstance(s, Declare)}
                found.folded.update(dict.fromkeys(assigned(loop.body) - own, loop))
                states = {s.state for s in walk(loop.body) if isinstance(s, Scan)}
                found.scanned.update(dict.fromkeys(states - own, loop))
                before, count = -1, 0
                while before != count:
                    before = count
                    found._read(loop.body, loop)
                    count = len(own & found.varying)
        return found

    def _read(self, block: Block, loop: Loop) -> None:
        for statement in walk(block):
            for target in _targets(statement):
                outside = target in self.folded or target in self.scanned
                if not outside and self._varies(statement, loop):
                    self.varying.add(target)

    def _varies(self, statement: Statement, loop: Loop) -> bool:
        match statement:
            case Position(index=index):
                return self.stride(index, loop) != 0
            case Load(index=index, mask=mask):
                return mask in self.varying or self.stride(index, loop) != 0
            case Within(value=value):
                return value in self.varying
            case Scan(state=state, value=value):
                return state in self.scanned or value in self.varying
        return any(operand in self.varying for operand in operands(statement))

    def stride(self, index: Index, loop: Loop | None) -> Extent | None:
        """By how much a lane moves an index within a block of lanes, or None where that is not constant."""
        return 0 if loop is None else lane_stride(index, loop.axis, loop.lanes, self.varying.__contains__)


def _targets(statement: Statement) -> tuple[Value, ...]:
    match statement:
        case Loop() | Store() | Flush():
            return ()
        case Best(best=best, position=position):
            return best, position
        case Scan(target=target, state=state):
            return target, state
        case _:
            return (statement.target,) if hasattr(statement, "target") else ()


def moving(loop: Loop) -> set[Value]:
    """The values that differ from block to block of a loop of lanes, also where lanes of a block do not."""
    found: set[Value] = set()
    for statement in walk(loop.body):
        index = getattr(statement, "index", None)
        if (index is not None and loop.axis in index.axes()) or not found.isdisjoint(operands(statement)):
            found.update(_targets(statement))
    return found


def shared(loop: Loop, moving: set[Value]) -> set[Value]:
    """Of a loop of lanes that is unrolled around others, what moves and is known in one run of statements and used in
    another: it has a place for each vector.
    """
    made: dict[Value, int] = {}
    found: set[Value] = set()
    for number, run in enumerate(runs(loop.body)):
        for statement in run:
            found |= {o for o in operands(statement) if made.get(o, number) != number}
            made.update({target: number for target in _targets(statement) if target in moving})
    return found - {s.target for s in walk(loop.body) if isinstance(s, Declare)}


def runs(block: Block) -> Iterator[list[Statement]]:
    """Statements between loops, those in loops too."""
    run: list[Statement] = []
    for statement in block:
        if isinstance(statement, Loop):
            yield run
            yield from runs(statement.body)
            run = []
        else:
            run.append(statement)
    yield run
