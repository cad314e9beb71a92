"""The passes, in order, and how they run.

A pass is a frozen record called with an `fx.Graph`; it changes the graph in place and gives the number of changes.
Invariant: results, their strides and which of them share memory stay as they were; every node keeps its `val`.
Neighbours: the other files of the package, one pass each; `stator.pipeline` runs the list before lowering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from torch import fx

from stator.passes.accumulate import AccumulateEmbeddings
from stator.passes.checks import RemoveImpliedChecks
from stator.passes.constants import FoldConstants
from stator.passes.dead import RemoveDead
from stator.passes.equal import MergeEqual
from stator.passes.noop import RemoveNoOps
from stator.passes.views import ComposeViews

Traced = TypeVar("Traced", fx.Graph, fx.GraphModule)


class Pass(Protocol):
    """One rewrite."""

    def __call__(self, graph: fx.Graph) -> int: ...


PIPELINE: tuple[Pass, ...] = (
    RemoveDead(),
    ComposeViews(),
    RemoveNoOps(),
    FoldConstants(),
    MergeEqual(),
    RemoveImpliedChecks(),
    RemoveDead(),
    AccumulateEmbeddings(),
)


def run(traced: Traced, passes: Sequence[Pass] = PIPELINE) -> Traced:
    """Apply the passes to a graph, or to the graph of a module; gives the same object."""
    graph = traced.graph if isinstance(traced, fx.GraphModule) else traced
    changes = sum(rewrite(graph) for rewrite in passes)
    if changes and isinstance(traced, fx.GraphModule):
        traced.recompile()
    return traced
