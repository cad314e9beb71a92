"""Common subexpressions: equal calls without effects are made once.

Values that leave the graph keep memory of their own, as the program was promised: a caller may change one of two equal
results in place. What forward keeps for backward leaves it too, so calls are merged in the joint graph first, before it
is decided what is kept: autocast converts an activation once for each product that reads it.
Neighbours: `pipeline.py`, `memory.py` (what leaves), `aot/partition.py` (what is kept).
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class MergeJoint:
    """The same in a graph that is both forward and backward, within each of them, and within a checkpointed region.

    Whatever leaves it stays, and so does all that lies in its memory.
    """

    def __call__(self, graph: fx.Graph) -> int:
        escapes = Escapes(graph)
        known: dict[Any, fx.Node] = {}
        changes = 0
        for node in graph.nodes:
            if node.op != "call_function" or not may_merge(node) or _leaves(escapes, node):
                continue
            key = node.meta["phase"], node.meta.get("recompute"), _key(node)
            first = known.setdefault(key, node)
            if first is not node:
                escapes.replace(node, first)
                changes += 1
        return changes


def _leaves(escapes: Escapes, node: fx.Node) -> bool:
    """Whether an output lies in the memory of the node, or in that of one of its several results."""
    return root(node) in escapes.roots or bool(_leaving(escapes, node))


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
