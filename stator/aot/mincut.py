"""Minimum cut between two nodes of a directed graph, by Dinic's algorithm.

Rounds of a search for the shortest ways with room left, and of filling all of those, until there is none. What the
source then still reaches is the smallest side that a minimum cut has. Source and sink are nodes 0 and 1.
Neighbour: `partition.py`.
"""

from __future__ import annotations

INFINITE = 1 << 100  # more than all costs together


class FlowGraph:
    """Edges with integer capacities between nodes numbered by `node()`; node 0 is the source, 1 the sink.

    An edge is a number, and the next one, of the pair, takes flow back; `_room` is how much more each can take.
    """

    __slots__ = ("_edges", "_room", "_targets")

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        self._targets: list[int] = []
        self._room: list[int] = []

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, source: int, target: int, capacity: int) -> None:
        """An edge; `INFINITE` is never cut."""
        for start, end, room in ((source, target, capacity), (target, source, 0)):
            self._edges[start].append(len(self._targets))
            self._targets.append(end)
            self._room.append(room)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a minimum cut, the smallest such set.

        Raises ValueError where every cut is infinite.
        """
        while (steps := self._steps())[1] >= 0:
            self._fill(steps)
        return {node for node, step in enumerate(steps) if step >= 0}

    def _steps(self) -> list[int]:
        """How many edges with room it is from the source to each node, at least; -1 to what it does not reach."""
        steps = [-1] * len(self._edges)
        steps[0] = 0
        reached = [0]
        for node in reached:
            if node == 1:
                break
            for edge in self._edges[node]:
                target = self._targets[edge]
                if steps[target] < 0 and self._room[edge]:
                    steps[target] = steps[node] + 1
                    reached.append(target)
        return steps

    def _fill(self, steps: list[int]) -> None:
        """Send flow along shortest ways until none has room left; an edge that led nowhere is not tried again."""
        edges, targets, room = self._edges, self._targets, self._room
        tried = [0] * len(edges)
        way: list[int] = []
        node = 0
        while True:
            if node == 1:
                way = self._send(way)
                node = targets[way[-1]] if way else 0
            out, step = edges[node], steps[node] + 1
            for i in range(tried[node], len(out)):
                if room[edge := out[i]] and steps[targets[edge]] == step:
                    tried[node] = i
                    way.append(edge)
                    node = targets[edge]
                    break
            else:
                if not way:
                    return
                steps[node] = -1
                node = targets[way.pop() ^ 1]

    def _send(self, way: list[int]) -> list[int]:
        """Send as much as a way takes, and give the part of it before the first edge that is full now."""
        room = self._room
        amount = min([room[edge] for edge in way])
        if amount >= INFINITE:
            raise ValueError("a way from the source to the sink has no edge that can be cut")
        for edge in way:
            if room[edge] < INFINITE:
                room[edge] -= amount
            room[edge ^ 1] += amount
        return way[: next(i for i, edge in enumerate(way) if not room[edge])]
