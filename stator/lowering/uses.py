"""Who reads each value of an fx graph, found in one backward pass and looked at through views.

A view costs nothing, so the readers of a view are readers of its base. Neighbours: `context.py`
(the cost rule), `product.py` (whether a bias is split off a matrix product).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from stator.fake.overloads import overload
from stator.fake.symbolic import extents
from stator.graphs.calls import is_view
from stator.prims.set import PRIMITIVES
from stator.sizes import hint

#: What reads at positions that are computed.
GATHERS = frozenset(map(overload, ("index.Tensor", "index_select", "gather")))


@dataclass(slots=True)
class Uses:
    """How many nodes read a value, and whether extern calls or the output are among them.

    `elements` is how many the largest result of its readers has: it is computed that often if nobody puts it in memory.
    `gathered` is how often readers compute it that take it at computed positions, with all that they are part of.
    """

    count: int = 0
    extern: int = 0
    output: bool = False
    elements: int = 0
    gathered: int = 0


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
                uses.elements = max(uses.elements, beyond.elements)
                uses.gathered = max(uses.gathered, beyond.gathered)
                continue
            uses.count += 1
            uses.elements = max(uses.elements, _elements(user))
            uses.gathered = max(uses.gathered, _gathered(user, found[user]))
            uses.extern += primitive is None or primitive.kind == "extern"
    return found


def _gathered(node: Node, uses: Uses) -> int:
    """How often readers of a node's result, and itself if it is a gather, compute what it gathers."""
    target: Any = node.target
    if uses.output:
        return 0
    if target in GATHERS:
        return max(_elements(node), uses.elements, uses.gathered)
    primitive = PRIMITIVES.get(target)
    return uses.gathered if primitive is not None and primitive.kind == "pointwise" else 0


def _elements(node: Node) -> int:
    """How many elements a node's result has, in the call at hand."""
    value = node.meta.get("val")
    return hint(prod(extents(value.shape))) if isinstance(value, torch.Tensor) else 0
