"""Dead code: calls whose values nobody reads.

Runs first, so that the other passes do not look at such calls, and last, for what they leave over; a call with an
effect is needed though nothing reads its value. Neighbours: `pipeline.py`, `graphs/calls.py`.
"""

from __future__ import annotations

from torch import fx

from stator.base.records import dataclass
from stator.graphs.calls import effects_of


@dataclass(frozen=True, slots=True)
class RemoveDead:
    """`y = f(x)`, never used  -->  nothing. Inputs and calls with effects stay."""

    def __call__(self, graph: fx.Graph) -> int:
        changes = 0
        for node in reversed(graph.nodes):
            if node.op != "call_function" or node.users or effects_of(node):
                continue
            graph.erase_node(node)
            changes += 1
        return changes
