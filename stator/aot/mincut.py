"""Minimum cut between two nodes of a directed graph, by Dinic's algorithm.

Flow is sent along shortest paths, all of one length in a phase, until the source is cut off; the paths of a joint graph
are short, so phases are few. Source and sink are nodes 0 and 1. Neighbour: `partition.py`.
"""

from __future__ import annotations

from math import inf

INFINITE = inf


class FlowGraph:
    """Edges with capacities between nodes numbered by `node()`; node 0 is the source, 1 the sink.

    Edge 2k is the k-th that was added and 2k + 1 its reverse, which has the flow that can be taken back.
    """

    __slots__ = ("_edges", "_left", "_levels", "_open", "_targets")

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # of each node, those that leave it
        self._targets: list[int] = []
        self._left: list[float] = []  # the capacity of each edge that is not used
        self._levels: list[int] = []  # of each node, nodes on the way to the sink with it; 0 where there is no way
        self._open: dict[int, list[int]] = {}  # of each node, the edges a level down that may lead to the sink

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, source: int, target: int, capacity: float) -> None:
        """An edge; `INFINITE` is never cut."""
        self._edges[source].append(len(self._targets))
        self._edges[target].append(len(self._targets) + 1)
        self._targets += (target, source)
        self._left += (capacity, 0)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a minimum cut, the smallest such set."""
        left = self._left
        while self._reaches():
            for first in self._edges[0]:
                while left[first] and (path := self._path(first)):
                    flow = min([left[edge] for edge in path])
                    if flow == INFINITE:
                        raise AssertionError("source and sink are connected by edges that are never cut")
                    for edge in path:
                        left[edge] -= flow
                        left[edge ^ 1] += flow
        reached, queue = {0}, [0]
        for node in queue:
            for edge in self._edges[node]:
                if left[edge] and (target := self._targets[edge]) not in reached:
                    reached.add(target)
                    queue.append(target)
        return reached

    def _reaches(self) -> bool:
        """Whether flow gets from the source to the sink; sets the levels of all nodes on shortest ways."""
        left, targets = self._left, self._targets
        levels = self._levels = [0] * len(self._edges)
        self._open = {}
        levels[1], queue = 1, [1]
        for node in queue:
            level = levels[node] + 1
            if 0 < levels[0] < level:
                break
            for edge in self._edges[node]:
                if left[edge ^ 1] and not levels[target := targets[edge]]:
                    levels[target] = level
                    queue.append(target)
        return levels[0] > 0

    def _path(self, first: int) -> list[int]:
        """A shortest path with capacity left that begins with an edge of the source; nothing where there is none."""
        left, targets, levels = self._left, self._targets, self._levels
        node, path = targets[first], [first]
        if levels[node] != levels[0] - 1:
            return []
        while node != 1:
            edges = self._open.get(node)
            if edges is None:
                edges = [e for e in self._edges[node] if left[e] and levels[targets[e]] == levels[node] - 1]
                self._open[node] = edges
            while edges and not left[edges[-1]]:
                edges.pop()
            if edges:
                path.append(edges[-1])
                node = targets[path[-1]]
                continue
            edge = path.pop()
            if not path:
                return []
            node = targets[edge ^ 1]
            self._open[node].pop()
        return path
