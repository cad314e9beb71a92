"""Minimum cut between two nodes of a directed graph: a thin form over networkx.

The maximum flow is networkx's; the cut is read off its residual network. Source and sink are nodes 0 and 1.
networkx takes longer to import than many graphs to compile, so that waits for the first cut; inference has none.
Neighbour: `partition.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

INFINITE = 1 << 60


class FlowGraph:
    """Edges with integer capacities between nodes numbered by `node()`; node 0 is the source, 1 the sink."""

    __slots__ = ("_count", "_graph")

    def __init__(self) -> None:
        self._graph: Any = import_module("networkx").DiGraph()
        self._graph.add_nodes_from((0, 1))
        self._count = 2

    def node(self) -> int:
        """A new node."""
        self._count += 1
        return self._count - 1

    def edge(self, source: int, target: int, capacity: int) -> None:
        """An edge; `INFINITE` is never cut."""
        if capacity >= INFINITE:
            self._graph.add_edge(source, target)  # networkx reads no capacity as no limit
        else:
            self._graph.add_edge(source, target, capacity=capacity)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a minimum cut, the smallest such set."""
        residual = import_module("networkx.algorithms.flow").boykov_kolmogorov(self._graph, 0, 1)
        reached, queue = {0}, [0]
        for node in queue:
            for target, edge in residual[node].items():
                if target not in reached and edge["flow"] < edge["capacity"]:
                    reached.add(target)
                    queue.append(target)
        return reached
