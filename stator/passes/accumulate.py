"""Gradients of shared weights: sums with a gradient that is mostly zeros. Neighbour: `pipeline.py`.

A tied embedding gets a gradient from the product that ends the model and one from the look-up that begins it. The
second is a few rows in a tensor of zeros as large as the weight; it is never made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.fake.symbolic import extents
from stator.graphs.nodes import add_call, call_for

aten = torch.ops.aten

#: What gives a tensor of its own that a later write may go to.
_OWNERS = (aten.mm.default, aten.embedding_dense_backward.default, aten.index_put.default)
_WIDE = (torch.float32, torch.float64)  # others would be rounded once a row more often


@dataclass(frozen=True, slots=True)
class AccumulateEmbeddings:
    """`add(x, embedding_dense_backward(g, i, n))`  -->  `index_put(x, [i], g, accumulate=True)`, `x` used only there.

    Rows of a position that pads are zeros: `g` is `where(unsqueeze(i == padding, -1), 0, g)` then. Lowering lets the
    second write into the memory of `x`.
    """

    def __call__(self, graph: fx.Graph) -> int:
        changes = 0
        for node in graph.nodes:
            if node.op != "call_function" or node.target is not aten.add.Tensor or len(node.args) != 2 or node.kwargs:
                continue
            a, b = node.args
            if _adds_rows(node, b, a):
                _replace(graph, node, a, b)
            elif _adds_rows(node, a, b):
                _replace(graph, node, b, a)
            else:
                continue
            changes += 1
        return changes


def _adds_rows(node: fx.Node, rows: Any, x: Any) -> bool:
    if not isinstance(rows, fx.Node) or rows.target is not aten.embedding_dense_backward.default:
        return False
    if not isinstance(x, fx.Node) or x.target not in _OWNERS or rows is x or len(x.users) + len(rows.users) != 2:
        return False
    *_, by_frequency = rows.args
    found, wanted = x.meta["val"], node.meta["val"]
    geometries = [(extents(value.shape), extents(value.stride())) for value in (found, wanted)]
    same = found.dtype is wanted.dtype and geometries[0] == geometries[1]
    return bool(not by_frequency and same and wanted.dtype in _WIDE)


def _replace(graph: fx.Graph, node: fx.Node, x: fx.Node, rows: fx.Node) -> None:
    gradient, positions, _, padding, _ = rows.args
    with graph.inserting_before(node):
        if padding != -1:
            gradient = _without_padding(node, gradient, positions, padding)
        made = add_call(graph, aten.index_put.default, (x, [positions], gradient, True), {}, node.name)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    graph.erase_node(rows)


def _without_padding(node: fx.Node, gradient: Any, positions: Any, padding: Any) -> fx.Node:
    """The gradient of rows, zeros at the position that pads."""
    pads = call_for(node, aten.unsqueeze.default, call_for(node, aten.eq.Scalar, positions, padding), -1)
    return call_for(node, aten.where.ScalarSelf, pads, 0.0, gradient)
