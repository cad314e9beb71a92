"""What is a vector: facts of a function about its loops of lanes, from its statements alone.

A value varies if lanes differ in it. A variable from outside of a loop of lanes to which that adds has a part for each
lane, which are folded after the loop. Neighbour: `printer`, which writes what this says.
"""

from __future__ import annotations

from dataclasses import field

from stator.base.records import dataclass
from stator.kernel import ir
from stator.kernel.facts import lane_stride
from stator.loop.index import Index
from stator.sizes import Extent


@dataclass(slots=True)
class Lanes:
    """The facts of one function.

    `folded` are the variables with parts, each with the loop that adds to them, `scanned` those that a scan along lanes
    changes; `best` says where the best values are.
    """

    varying: set[ir.Value] = field(default_factory=set)
    folded: dict[ir.Value, ir.Loop] = field(default_factory=dict)
    scanned: dict[ir.Value, ir.Loop] = field(default_factory=dict)
    flushed: set[ir.Value] = field(default_factory=set)
    best: dict[ir.Value, ir.Best] = field(default_factory=dict)

    @staticmethod
    def of(function: ir.Function) -> Lanes:
        """Read a function; again as long as variables are found to vary, which others are made of."""
        found = Lanes()
        for statement in ir.walk(function.body):
            if isinstance(statement, ir.Flush):
                found.flushed.add(statement.target)
            elif isinstance(statement, ir.Best):
                found.best[statement.best] = statement
        for loop in ir.walk(function.body):
            if isinstance(loop, ir.Loop) and loop.lanes:
                own = {s.target for s in ir.walk(loop.body) if isinstance(s, ir.Declare)}
                found.folded.update(dict.fromkeys(ir.assigned(loop.body) - own, loop))
                states = {s.state for s in ir.walk(loop.body) if isinstance(s, ir.Scan)}
                found.scanned.update(dict.fromkeys(states - own, loop))
                before, count = -1, 0
                while before != count:
                    before = count
                    found._read(loop.body, loop)
                    count = len(own & found.varying)
        return found

    def _read(self, block: ir.Block, loop: ir.Loop) -> None:
        for statement in ir.walk(block):
            for target in ir.targets(statement):
                outside = target in self.folded or target in self.scanned
                if not outside and self._varies(statement, loop):
                    self.varying.add(target)

    def _varies(self, statement: ir.Statement, loop: ir.Loop) -> bool:
        match statement:
            case ir.Position(index=index):
                return self.stride(index, loop) != 0
            case ir.Load(index=index, mask=mask):
                return mask in self.varying or self.stride(index, loop) != 0
            case ir.Within(value=value):
                return value in self.varying
            case ir.Scan(state=state, value=value):
                return state in self.scanned or value in self.varying
        return any(operand in self.varying for operand in ir.operands(statement))

    def stride(self, index: Index, loop: ir.Loop | None) -> Extent | None:
        """By how much a lane moves an index within a block of lanes, or None where that is not constant."""
        return 0 if loop is None else lane_stride(index, loop.axis, loop.lanes, self.varying.__contains__)
