"""Forms: expressions of what programs are given, in which it is left open where anything is read. Values of several
nests, and of forward and backward, have the same form where the same is computed.

What runs over more than a point has a form that is a load by a number; `bodies` have what it is.
Neighbours: `shown` and `cancel` ask which roundings are which.
"""

from __future__ import annotations

from collections.abc import Mapping

from stator.loop import expr as e
from stator.loop.deps import Facts
from stator.loop.expr import Expr, Rewriter
from stator.loop.index import Index
from stator.loop.nest import Nest


class Forms(Rewriter):
    """The forms of expressions of one program. `buffers` have those of what memory has; `bodies` are shared among
    programs, by the loads that stand for them."""

    def __init__(self, bodies: dict[Expr, Expr], buffers: Mapping[str, Expr] | None = None) -> None:
        super().__init__({}, self.read)
        self.bodies, self.buffers = bodies, dict(buffers or {})
        self._numbers = {body: load for load, body in bodies.items()}

    def learn(self, facts: Facts) -> None:
        """The forms of all buffers that one nest of a program writes."""
        for number in facts.live:
            node = facts.node(number)
            if isinstance(node, Nest) and node.buffer.name not in facts.special:
                self.buffers[node.buffer.name] = self._value(node)

    def read(self, name: str, index: Index, dtype: str) -> Expr:
        """What memory has."""
        return self.buffers.get(name) or e.load(name, 0, dtype)

    def _value(self, node: Nest) -> Expr:
        form = self(node.value)
        if not node.reduce_axes:
            return form
        if (load := self._numbers.get(form)) is None:
            load = self._numbers[form] = e.load(f"{len(self.bodies)}", 0, node.buffer.dtype)
            self.bodies[load] = form
        return load

    def _rebuild(self, node: Expr) -> Expr:
        return e.load("", 0, "i64") if node.op == "index" else super()._rebuild(node)
