"""Who reads each value of an fx graph, found in one backward pass and looked at through views.

A view costs nothing, so the readers of a view are readers of its base. Neighbours: `context.py`
(the cost rule), `product.py` (whether a bias is split off a matrix product).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch.fx import Graph, Node

from stator.fake.graphs import is_view
from stator.prims.set import PRIMITIVES


@dataclass(slots=True)
class Uses:
    """How many nodes read a value, and whether extern calls or the output are among them."""

    count: int = 0
    extern: int = 0
    output: bool = False


def find(graph: Graph) -> dict[Node, Uses]:
    """The uses of every node."""
    found: dict[Node, Uses] = {}
    for node in reversed(graph.nodes):
        uses = found[node] = Uses()
        for user in node.users:
            if user.op == "output":
                uses.count += 1
                uses.output = True
                continue
            primitive = PRIMITIVES.get(user.target)
            if user.target is operator.getitem or is_view(user):
                beyond = found[user]
                uses.count += beyond.count
                uses.extern += beyond.extern
                uses.output = uses.output or beyond.output
                continue
            uses.count += 1
            uses.extern += primitive is None or primitive.kind == "extern"
    return found
