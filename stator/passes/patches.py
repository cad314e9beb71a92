"""Convolutions whose windows lie side by side, with frozen weights, as products of bfloat16: those that embed patches.

Each element of the image is part of one window, so the windows are the image in another order: a copy, which is part of
the kernel that computes the image, and a row of terms for each result. Only under the option `freezing`, where a kernel
of ours multiplies by tiles of the processor.
Neighbours: `convolutions.py` asks; `pairs.py` decides and lays weights; `pixels.py` has windows of one pixel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from stator.base import tiling
from stator.base.device import Device
from stator.graphs.convolutions import both
from stator.graphs.nodes import add_call, call_for
from stator.graphs.pixels import MULTIPLY_PIXELS, PAIRS
from stator.passes import pairs

aten = torch.ops.aten


class _Patches(NamedTuple):
    """How an image is divided: how many images, channels, windows down and across, and their sides."""

    images: int
    channels: int
    down: int
    across: int
    height: int
    width: int


def takes(node: fx.Node, device: Device) -> bool:
    """Whether a kernel multiplies the windows of `convolution(x, w, b, …)`, which has known sizes and is packed."""
    found = _patches(node)
    if found is None:
        return False
    value: torch.Tensor = node.meta["val"]
    rows, terms = found.images * found.down * found.across, found.channels * found.height * found.width
    return pairs.is_faster(value.dtype, tiling.Product(rows, value.shape[1], terms), device)


def _patches(node: fx.Node) -> _Patches | None:
    """None where windows have one pixel, or are not side by side over all of the image."""
    args: Any = node.args
    x, weight, _, stride, padding, dilation, transposed, _, groups = args
    n, channels, height, width = x.meta["val"].shape
    sides = [*weight.meta["val"].shape[2:]]
    if transposed or groups != 1 or sides == [1, 1] or both(stride) != sides or both(padding) != [0, 0]:
        return None
    if both(dilation) != [1, 1] or height % sides[0] or width % sides[1]:
        return None
    return _Patches(n, channels, height // sides[0], width // sides[1], *sides)


def multiply(node: fx.Node) -> None:
    """Replace a convolution that `takes` is true of by a product of pixels, each of which is a window."""
    found = _patches(node)
    assert found is not None
    n, channels, down, across, height, width = found
    graph, args = node.graph, node.args
    x, weight, bias = args[:3]
    innermost = x.meta["val"].stride()[1] == 1  # type: ignore[union-attr]
    # Terms are in the order in which they lie in the image, so that the copy reads and writes runs of them.
    order = ([0, 2, 4, 3, 5, 1], [0, 2, 3, 1]) if innermost else ([0, 2, 4, 1, 3, 5], [0, 1, 2, 3])
    with graph.inserting_before(node):
        parts = call_for(node, aten.view.default, x, [n, channels, down, height, across, width])
        turned = call_for(node, aten.permute.default, parts, order[0])
        copied = call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
        pixels = call_for(node, aten.view.default, copied, [n, down, across, channels * height * width])
        image = call_for(node, aten.permute.default, pixels, [0, 3, 1, 2])
        window = call_for(node, aten.permute.default, weight, order[1])
        whole = call_for(node, aten.clone.default, window, memory_format=torch.contiguous_format)
        matrix = call_for(node, aten.view.default, whole, [-1, channels * height * width])
        packed = pairs.lay(node, matrix)
        product = add_call(graph, MULTIPLY_PIXELS, (image, matrix, bias, packed, PAIRS), {}, "convolution")
    product.meta.update(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)
