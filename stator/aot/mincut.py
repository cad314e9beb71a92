"""Minimum cut between two nodes of a directed graph, by a maximum flow (Dinic's algorithm).

Source and sink are nodes 0 and 1. Edges lie in pairs, an edge and its reverse, whose numbers differ in the last bit;
`_left` is what may still flow along each. What the source reaches along edges with something left is its side.
Neighbour: `partition.py`.
"""

from __future__ import annotations

from math import inf

INFINITE = 1 << 60


class FlowGraph:
    """Edges with integer capacities between nodes numbered by `node()`; node 0 is the source, 1 the sink."""

    __slots__ = ("_edges", "_left", "_targets")

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        self._targets: list[int] = []
        self._left: list[float] = []

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, source: int, target: int, capacity: int) -> None:
        """An edge; `INFINITE` is never cut."""
        for start, end, left in ((source, target, inf if capacity >= INFINITE else capacity), (target, source, 0)):
            self._edges[start].append(len(self._targets))
            self._targets.append(end)
            self._left.append(left)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a minimum cut, the smallest such set."""
        while 1 in (steps := self._steps()):
            self._saturate(steps)
        return set(steps)

    def _steps(self) -> dict[int, int]:
        """How many edges with something left lead from the source to each node that it reaches."""
        steps, queue = {0: 0}, [0]
        left, targets = self._left, self._targets
        for node in queue:
            for edge in self._edges[node]:
                target = targets[edge]
                if left[edge] and target not in steps:
                    steps[target] = steps[node] + 1
                    queue.append(target)
        return steps

    def _saturate(self, steps: dict[int, int]) -> None:
        """Send what can be sent along shortest paths. An edge that leads nowhere is not tried twice."""
        left, targets = self._left, self._targets
        untried = {node: self._edges[node][:] for node in steps}
        path: list[int] = []
        node = 0
        while True:
            if node == 1:
                flow = min([left[edge] for edge in path])
                if flow == inf:
                    raise ValueError("no finite cut")
                for edge in path:
                    left[edge] -= flow
                    left[edge ^ 1] += flow
                full = next(i for i, edge in enumerate(path) if not left[edge])
                node = targets[path[full] ^ 1]
                del path[full:]
            edges, step = untried[node], steps[node] + 1
            while edges and not (left[edges[-1]] and steps.get(targets[edges[-1]]) == step):
                edges.pop()
            if edges:
                path.append(edges[-1])
                node = targets[edges[-1]]
            elif path:
                node = targets[path.pop() ^ 1]
                untried[node].pop()
            else:
                return
