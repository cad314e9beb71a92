"""Who reads each value of an fx graph, found in one backward pass and looked at through views.

A view costs nothing, so the readers of a view are readers of its base. Neighbours: `context.py`
(the cost rule), `product.py` (whether a bias is split off a matrix product).
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from stator.base.records import dataclass
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
    reads: dict[Node, Uses] = {}  # what it is to be read by a node
    for node in reversed(graph.nodes):
        uses = found[node] = Uses()
        for user in node.users:
            read = reads[user]
            uses.count += read.count
            uses.extern += read.extern
            uses.output = uses.output or read.output
            uses.elements = max(uses.elements, read.elements)
            uses.gathered = max(uses.gathered, read.gathered)
        reads[node] = _read(node, uses)
    return found


def _read(node: Node, uses: Uses) -> Uses:
    """What a node is to those that it reads; through views and parts of results its own readers are seen."""
    target: Any = node.target
    if node.op == "output":
        return Uses(1, output=True)
    if target is operator.getitem or is_view(node):
        return uses
    primitive = PRIMITIVES.get(target)
    kind = "extern" if primitive is None else primitive.kind
    elements = _elements(node)
    if uses.output:
        gathered = 0
    elif target in GATHERS:  # how often readers of the result, and itself, compute what it gathers
        gathered = max(elements, uses.elements, uses.gathered)
    else:
        gathered = uses.gathered if kind == "pointwise" else 0
    return Uses(1, int(kind == "extern"), False, elements, gathered)


def _elements(node: Node) -> int:
    """How many elements a node's result has, in the call at hand."""
    value = node.meta.get("val")
    return hint(prod(extents(value.shape))) if isinstance(value, torch.Tensor) else 0
