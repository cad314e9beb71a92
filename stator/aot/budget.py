"""What to compute again under a memory budget: the forward graph in segments, of which only the borders are kept.

A budget below 1 bounds the activation peak, which is the most bytes at once besides parameters, inputs and gradients:
1 is that of the default, 0 the lowest that any plan here reaches, and what lies between is in proportion. Plans differ
in how many segments the forward graph is cut into, at places where few values are alive, and how many of them are
computed again. Of the plans that are worth their work, each cheaper one needing more memory in both senses (activation
peak, and peak with gradients), the cheapest within the bound is taken: so both peaks are monotone in the budget.

Peaks are counted on the graphs, where cheap values take no memory unless something else reads them from there.
Neighbours: `partition.py` cuts for each plan and asks for the choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from stator.base.records import dataclass
from stator.fake.symbolic import size_of
from stator.graphs.calls import may_repeat, root
from stator.sizes import hint

aten = torch.ops.aten

#: (segments, how many of them from the first on are computed again)
_PLANS = (
    (2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (4, 4), (8, 2), (8, 4), (8, 6), (8, 8), (16, 4), (16, 8), (16, 12), (16, 16)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecomputePlan:
    """What may be computed again besides cheap operators, and what may not be in any case."""

    allowed: frozenset[fx.Node] = frozenset()
    pinned: frozenset[fx.Node] = frozenset()


@dataclass(frozen=True, slots=True)
class Cost:
    """A plan's peaks in bytes, and the bytes that what is computed again reads and writes."""

    activations: int
    peak: int
    work: int


def choose(plans: Sequence[RecomputePlan], costs: Sequence[Cost], budget: float) -> RecomputePlan:
    """The plan for a budget; the first one is the default."""
    useful = [0]
    for i in sorted(range(1, len(plans)), key=lambda i: (costs[i].work, costs[i].activations)):
        last = costs[useful[-1]]
        if costs[i].activations < last.activations and costs[i].peak <= last.peak:
            useful.append(i)
    least, most = costs[useful[-1]].activations, costs[0].activations
    bound = least + budget * (most - least)
    return plans[next(i for i in useful if costs[i].activations <= bound or i == useful[-1])]


def plans(nodes: Sequence[fx.Node], saved: Iterable[fx.Node], cheap: Callable[[fx.Node], bool]) -> list[RecomputePlan]:
    """The default, and cuts of the forward graph (`nodes`, in order) into segments of about equal saved bytes."""
    expensive = {node: i for i, node in enumerate(nodes) if not cheap(node) and may_repeat(node)}
    liveness = _Liveness(nodes)
    found = [RecomputePlan()]
    for count, again in _PLANS:
        borders = _borders(nodes, list(saved), liveness, count)[:again]
        if len(borders) < again:
            continue
        allowed = frozenset(node for node, i in expensive.items() if i < borders[-1])
        pinned = frozenset(node for border in borders for node in liveness.crossing(border))
        found.append(RecomputePlan(allowed - pinned, pinned))
    return found


class _Liveness:
    """Which values are alive between two nodes of a graph, and how many bytes they take."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        order = {node: i for i, node in enumerate(nodes)}
        last: dict[fx.Node, int] = {}
        for i, node in enumerate(nodes):
            for parent in node.all_input_nodes:
                if root(parent) in order:
                    last[root(parent)] = i
        self.lives = [(order[node], end, node) for node, end in last.items()]
        changes = [0] * (len(nodes) + 1)
        for start, end, node in self.lives:
            changes[start + 1] += bytes_of(node)
            changes[end + 1 if end + 1 < len(changes) else end] -= bytes_of(node)
        self.at = [0] * (len(nodes) + 1)
        for i, change in enumerate(changes):
            self.at[i] = (self.at[i - 1] if i else 0) + change

    def crossing(self, border: int) -> list[fx.Node]:
        """What is made before the border and read from there on."""
        return [node for start, end, node in self.lives if start < border <= end]


def _borders(nodes: Sequence[fx.Node], saved: list[fx.Node], liveness: _Liveness, count: int) -> list[int]:
    """The ends of `count` segments, the last one the end of the graph."""
    kept = set(saved)
    sums = [0]
    for node in nodes:
        sums.append(sums[-1] + (bytes_of(node) if node in kept else 0))
    ends: list[int] = []
    for part in range(1, count):
        low = _first(sums, sums[-1] * (part - 0.4) / count)
        high = _first(sums, sums[-1] * (part + 0.4) / count)
        start = max(low, ends[-1] + 1 if ends else 1)
        if start < high:
            ends.append(min(range(start, high), key=lambda i: (liveness.at[i], i)))
    return [*ends, len(nodes)]


def _first(sums: Sequence[int], bound: float) -> int:
    """The first position whose sum reaches the bound."""
    return next(i for i, total in enumerate(sums) if total >= bound)


# ---- peaks -----------------------------------------------------------------------------------------------------------


def peaks(graph: fx.Graph, existing: Callable[[fx.Node], bool], cheap: Callable[[fx.Node], bool]) -> tuple[int, int]:
    """The most bytes at once that running a graph takes, without its results and with them."""
    nodes = list(graph.nodes)
    results = {_home(node) for node in nodes[-1].all_input_nodes}
    end: dict[fx.Node, int] = {}
    start: dict[fx.Node, int] = {}
    for i, node in enumerate(nodes):
        memory = _home(node)
        start.setdefault(memory, i if memory.op != "placeholder" else 0)
        for parent in _read(node, cheap):
            end[parent] = i
    without, every = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)
    for memory, first in start.items():
        if memory.op == "output" or (memory.op == "placeholder" and existing(memory)):
            continue
        if memory.op == "call_function" and memory not in results and _fused(memory, cheap):
            continue
        nbytes, last = bytes_of(memory), end.get(memory, first)
        if memory in results:
            every[first] += nbytes
            continue
        for changes in (without, every):
            changes[first] += nbytes
            changes[last + 1] -= nbytes
    return _peak(without), _peak(every)


def _read(node: fx.Node, cheap: Callable[[fx.Node], bool]) -> list[fx.Node]:
    """What is read from memory when the node runs: behind cheap values that are in none, what these read."""
    found: dict[fx.Node, None] = {}
    stack = [_home(parent) for parent in node.all_input_nodes]
    while stack:
        memory = stack.pop()
        if memory in found:
            continue
        found[memory] = None
        if memory.op == "call_function" and _fused(memory, cheap):
            stack += [_home(parent) for parent in memory.all_input_nodes]
    return list(found)


def _fused(node: fx.Node, cheap: Callable[[fx.Node], bool]) -> bool:
    """Whether a value exists in registers only: cheap, and read by few; or rows that are added to a table at once."""
    return (cheap(node) or _rows(node)) and len(node.users) <= 1


def _rows(node: Any) -> bool:
    """Whether it is the gradient of a table of embeddings that is added to another one."""
    if not isinstance(node, fx.Node) or node.target is not aten.embedding_dense_backward.default:
        return False
    return [user.target for user in node.users] == [aten.add.Tensor]


def _home(node: fx.Node) -> fx.Node:
    """The node in whose memory a value lies; rows of a table are added in place (`passes/accumulate.py`)."""
    memory = root(node)
    while memory.target is aten.add.Tensor and _rows(memory.args[1]) and isinstance(memory.args[0], fx.Node):
        memory = root(memory.args[0])
    return memory


def _peak(changes: Sequence[int]) -> int:
    """The largest of the running sums."""
    live = most = 0
    for change in changes:
        live += change
        most = max(most, live)
    return most


def work(nodes: Iterable[fx.Node]) -> int:
    """The bytes that nodes read and write."""
    return sum(bytes_of(node) + sum(map(bytes_of, node.all_input_nodes)) for node in nodes)


def bytes_of(node: fx.Node) -> int:
    """The bytes of a node's value, for the sizes at hand."""
    value: Any = node.meta.get("val", None)
    if not isinstance(value, torch.Tensor):
        return 0
    return math.prod([hint(size_of(extent)) for extent in value.shape]) * value.element_size()
