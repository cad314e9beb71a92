"""Common subexpressions: equal calls without effects are made once.

Values that leave the graph keep memory of their own, as the program was promised: a caller may change one of two equal
results in place. So what forward computes twice is merged before it is cut from backward (`share`), or else backward
would be given both: a mask or a bias that each layer makes anew.
Neighbours: `pipeline.py`, `memory.py` (what leaves).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import fx

from stator.fake.symbolic import size_of
from stator.graphs.calls import may_merge, root
from stator.passes.memory import Escapes
from stator.sizes.real import written


@dataclass(frozen=True, slots=True)
class MergeEqual:
    """`a = f(x); b = f(x)`  -->  `a = f(x)`, used for both; unless both leave the graph."""

    def __call__(self, graph: fx.Graph) -> int:
        escapes = Escapes(graph)
        known: dict[Any, fx.Node] = {}
        changes = 0
        for node in graph.nodes:
            if node.op != "call_function" or not may_merge(node):
                continue
            key = _key(node)
            first = known.setdefault(key, node)
            if first is not node and not _both_leave(escapes, first, node):
                escapes.replace(node, first)
                changes += 1
        return changes


def share(graph: fx.Graph, results: Iterable[fx.Node]) -> int:
    """Merge equal calls of forward in a graph that has backward too; results, and views of them, stay as they are.

    Calls in two checkpointed regions stay two: each region is computed again by itself.
    """
    leaving = {root(node) for node in results}
    known: dict[Any, fx.Node] = {}
    changes = 0
    for node in graph.nodes:
        if node.op != "call_function" or node.meta["phase"] != "forward" or not may_merge(node):
            continue
        if root(node) in leaving:
            continue
        first = known.setdefault((_key(node), node.meta.get("recompute")), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            changes += 1
    return changes


def _both_leave(escapes: Escapes, first: fx.Node, second: fx.Node) -> bool:
    if _leaving(escapes, first) & _leaving(escapes, second):
        return True
    if root(first) is root(second):  # views of one memory: only the objects must stay two
        return first in escapes.outputs and second in escapes.outputs
    return root(first) in escapes.roots and root(second) in escapes.roots


def _leaving(escapes: Escapes, call: fx.Node) -> set[Any]:
    """Which results of a call that has several lie in memory that leaves the graph."""
    return {user.args[1] for user in call.users if user.target is getitem and user in escapes.roots}


def _key(node: fx.Node) -> Any:
    """Equal for equal calls. Types are part of it: 1, 1.0 and True are equal in Python."""
    kwargs = tuple([(name, _frozen(value)) for name, value in sorted(node.kwargs.items())]) if node.kwargs else ()
    return node.target, _frozen(node.args), kwargs


def _frozen(arg: Any) -> Any:
    if isinstance(arg, fx.Node):
        return arg
    if isinstance(arg, (list, tuple)):
        return tuple([_frozen(item) for item in arg])
    if isinstance(arg, float):
        return float, arg.hex()  # tells -0.0 from 0.0
    if isinstance(arg, torch.SymInt):
        arg = size_of(arg)
    elif isinstance(arg, torch.SymFloat):
        arg = written(arg.node.value)
    return type(arg), arg
