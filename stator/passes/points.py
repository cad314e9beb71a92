"""Convolutions with windows of one pixel as products of pixels and channels, for a GPU, in both halves of a step.

Where an image has its channel innermost, such a convolution is the product of a matrix of pixels with the weight, and
so are both of its gradients. cuDNN has cuBLAS's kernels compute them, but takes the host some 30 µs longer a call, so
that networks made of them are bounded by the host; and what follows a product can be part of it (`lowering/matmul.py`).
It runs behind `images.py`, which lays the images, before forward and backward are cut in two.
Neighbours: `pixels.py` has those of the CPU, under freezing.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.fake.symbolic import is_symbolic
from stator.graphs.convolutions import both
from stator.graphs.nodes import call_for

aten = torch.ops.aten

_HALVES = {torch.bfloat16, torch.float16}
#: What numbers of channels are to be multiples of, that rows of channels begin where tensor cores load them.
_STEP = 8


def multiply(graph: fx.Graph, device: Device) -> dict[fx.Node, fx.Node]:
    """Replace convolutions, and their gradients; gives what stands for the nodes that are gone.

    Under deterministic algorithms they stay, for PyTorch refuses products of cuBLAS then.
    """
    if not device.convolves_innermost or torch.are_deterministic_algorithms_enabled():
        return {}
    gone: dict[fx.Node, fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_product(node.args[0], node.args[1], node.meta["val"], node.args[2:]):
            gone[node] = _convolved(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient, image, weight, _, *rest, mask = node.args
        if not mask[2] and _is_product(image, weight, gradient.meta["val"], [None, *rest]):
            gone.update(_gradients(graph, node))
    return gone


def _is_product(image: Any, weight: Any, result: torch.Tensor, rest: Any) -> bool:
    """Whether each result is a sum over the channels of one pixel, and all of them lie side by side; without a bias."""
    bias, stride, padding, _, transposed, _, groups = rest
    read, window = image.meta["val"], weight.meta["val"]
    if bias is not None or transposed or groups != 1 or read.ndim != 4 or read.dtype not in _HALVES:
        return False
    if is_symbolic([*read.shape, *window.shape, *result.shape]) or tuple(window.shape[2:]) != (1, 1):
        return False
    if both(stride) != [1, 1] or both(padding) != [0, 0] or 0 in (*read.shape, *result.shape):
        return False
    if any(channels % _STEP for channels in window.shape[:2]) and prod(read.shape[2:]) > 1:
        return False
    return all(value.is_contiguous(memory_format=torch.channels_last) for value in (read, result, window))


def _convolved(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """`convolution(x, w)`  -->  `mm(x.permute(0, 2, 3, 1).view(-1, c), w.view(k, c).t())`, as an image."""
    image, weight, *_ = node.args
    result: torch.Tensor = node.meta["val"]
    with graph.inserting_before(node):
        turned = call_for(node, aten.permute.default, _matrix(node, weight), [1, 0])
        product = call_for(node, aten.mm.default, _pixels(node, image), turned)
        made = _image(node, product, result)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return made


def _gradients(graph: fx.Graph, node: fx.Node) -> dict[fx.Node, fx.Node]:
    """`convolution_backward(g, x, w)`  -->  `(mm(g, w), mm(g.t(), x))`, of matrices of pixels and channels."""
    gradient, image, weight, *_ = node.args
    found: dict[fx.Node, fx.Node] = {}
    for user in list(node.users):
        assert user.target is operator.getitem, user.target
        with graph.inserting_before(user):
            rows = _pixels(user, gradient)
            if user.args[1] == 0:
                product = call_for(user, aten.mm.default, rows, _matrix(user, weight))
                found[user] = _image(user, product, user.meta["val"])
            else:
                turned = call_for(user, aten.permute.default, rows, [1, 0])
                product = call_for(user, aten.mm.default, turned, _pixels(user, image))
                found[user] = _image(user, product, user.meta["val"])
        user.replace_all_uses_with(found[user])
        graph.erase_node(user)
    graph.erase_node(node)
    return found


def _matrix(node: fx.Node, weight: Any) -> fx.Node:
    """The weight as a matrix of results by channels."""
    return call_for(node, aten.view.default, weight, [*weight.meta["val"].shape[:2]])


def _pixels(node: fx.Node, image: Any) -> fx.Node:
    """An image as a matrix of pixels by channels."""
    size = image.meta["val"].shape
    innermost = call_for(node, aten.permute.default, image, [0, 2, 3, 1])
    return call_for(node, aten.view.default, innermost, [size[0] * prod(size[2:]), size[1]])


def _image(node: fx.Node, matrix: fx.Node, like: torch.Tensor) -> fx.Node:
    """A matrix of pixels by channels, or of results by channels, as the image or weight that it stands for.

    Strides are those of the program, also where there is one pixel and they are of no consequence.
    """
    images, channels, *sides = like.shape
    if like.stride()[2:] == (1, 1) and prod(sides) == 1:
        return call_for(node, aten.view.default, matrix, [*like.shape])
    innermost = call_for(node, aten.view.default, matrix, [images, *sides, channels])
    return call_for(node, aten.permute.default, innermost, [0, 3, 1, 2])
