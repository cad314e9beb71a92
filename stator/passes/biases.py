"""Biases of convolutions as additions and sums, which become part of the kernels around.

PyTorch adds a bias behind cuDNN's convolution, in a kernel of its own that reads and writes the result again, and sums
its gradient in another; both round as these do. oneDNN's convolutions on the host add theirs for free, and keep it.
Neighbours: `images.py`, with which it runs before forward and backward are cut in two.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.graphs.nodes import call_for

aten = torch.ops.aten


def split(graph: fx.Graph, device: Device) -> dict[fx.Node, fx.Node]:
    """Take biases out of convolutions; gives what stands for the nodes that are gone."""
    if not device.convolves_innermost:
        return {}
    found = {}
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if isinstance(node.args[2], fx.Node):
            found[node] = _added(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        if node.args[-1][2]:
            found.update(_summed(graph, node))
    return found


def _added(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """`convolution(x, w, b, …)`  -->  `add(convolution(x, w, None, …), view(b, [1, n, 1, …]))`."""
    x, weight, bias, *rest = node.args
    result: Any = node.meta["val"]
    with graph.inserting_before(node):
        plain = call_for(node, aten.convolution.default, x, weight, None, *rest)
        size = [1, result.shape[1], *[1] * (result.ndim - 2)]
        added = call_for(node, aten.add.Tensor, plain, call_for(node, aten.view.default, bias, size))
    node.replace_all_uses_with(added)
    graph.erase_node(node)
    return added


def _summed(graph: fx.Graph, node: fx.Node) -> dict[fx.Node, fx.Node]:
    """`convolution_backward(g, …, [i, w, True])[2]`  -->  `sum(g, [0, 2, …])`."""
    gradient: Any = node.args[0]
    wanted = [user for user in node.users if user.target is operator.getitem and user.args[1] == 2]
    found = {}
    for user in wanted:
        dims = [0, *range(2, gradient.meta["val"].ndim)]
        with graph.inserting_before(user):
            found[user] = call_for(user, aten.sum.dim_IntList, gradient, dims)
        user.replace_all_uses_with(found[user])
        graph.erase_node(user)
    mask: Any = node.args[-1]
    node.args = (*node.args[:-1], [*mask[:2], False])
    before = node.meta["val"]
    node.meta["val"] = type(before)((*before[:2], None))
    if not any(mask[:2]):
        graph.erase_node(node)
    return found
