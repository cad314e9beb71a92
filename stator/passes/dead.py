"""Dead code: calls whose values nobody reads.

Runs first, so that the other passes do not look at such calls, and last, for what they leave over; a write-back is
used though nothing reads it. Neighbours: `pipeline.py`, `memory.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from stator.graphs.calls import acts
from stator.passes.memory import COPY_IN_PLACE


@dataclass(frozen=True, slots=True)
class RemoveDead:
    """`y = f(x)`, never used  -->  nothing. Inputs, write-backs and draws from torch's generator stay."""

    def __call__(self, graph: fx.Graph) -> int:
        changes = 0
        for node in reversed(graph.nodes):
            if node.op != "call_function" or node.users or node.target is COPY_IN_PLACE or acts(node):
                continue
            graph.erase_node(node)
            changes += 1
        return changes
