"""Convolutions of patches with frozen weights, as products of bfloat16: a copy of all windows, with a row for each.

Where windows lie side by side that is the image in another order. Where they overlap it is larger than the image, and
is made of images of few channels alone, which the library fills up with zeros: ResNet's first convolution, of 7 x 7
pixels and 3 channels, takes it 1.3 ms (two images, two threads, Xeon with AMX), where others of as many multiplications
take 0.2. Only under the option `freezing`, where a kernel of ours multiplies by tiles of the processor.
Neighbours: `convolutions.py` asks; `pairs.py` decides and lays weights; `pixels.py` has windows of one pixel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from stator.base import tiling
from stator.base.device import Device
from stator.graphs.convolutions import STEM_CHANNELS, both
from stator.graphs.nodes import add_call, call_for
from stator.graphs.pixels import MULTIPLY_PIXELS, PAIRS
from stator.passes import pairs

aten = torch.ops.aten


class _Patches(NamedTuple):
    """How images are divided: how many, channels, windows down and across, their sides and steps, a border."""

    images: int
    channels: int
    down: int
    across: int
    height: int
    width: int
    step: tuple[int, int]
    border: tuple[int, int]

    @property
    def beside(self) -> bool:
        """Whether each element of the image is part of one window."""
        return self.step == (self.height, self.width) and self.border == (0, 0)


def takes(node: fx.Node, device: Device) -> bool:
    """Whether a kernel multiplies the windows of `convolution(x, w, b, …)`, which has known sizes and is packed."""
    found = _patches(node)
    if found is None:
        return False
    value: torch.Tensor = node.meta["val"]
    rows, terms = found.images * found.down * found.across, found.channels * found.height * found.width
    return pairs.is_faster(value.dtype, tiling.Product(rows, value.shape[1], terms), device)


def _patches(node: fx.Node) -> _Patches | None:
    """None where windows have one pixel, or are neither side by side over all of the image nor of few channels."""
    args: Any = node.args
    x, weight, _, stride, padding, dilation, transposed, _, groups = args
    n, channels, *size = x.meta["val"].shape
    sides = [*weight.meta["val"].shape[2:]]
    if transposed or groups != 1 or sides == [1, 1] or both(dilation) != [1, 1]:
        return None
    step, border = tuple(both(stride)), tuple(both(padding))
    found = _Patches(n, channels, *node.meta["val"].shape[2:], *sides, step, border)
    whole = found.beside and size == [found.down * found.height, found.across * found.width]
    return found if whole or channels <= STEM_CHANNELS else None


def multiply(node: fx.Node) -> None:
    """Replace a convolution that `takes` is true of by a product of pixels, each of which is a window."""
    found = _patches(node)
    assert found is not None
    graph, args = node.graph, node.args
    x, weight, bias = args[:3]
    terms = found.channels * found.height * found.width
    with graph.inserting_before(node):
        # Terms are in the order in which they lie in the image, so that the copy reads and writes runs of them.
        innermost = not found.beside or x.meta["val"].stride()[1] == 1  # type: ignore[union-attr]
        parts = _beside(node, found, innermost) if found.beside else _overlapping(node, found)
        copied = call_for(node, aten.clone.default, parts, memory_format=torch.contiguous_format)
        pixels = call_for(node, aten.view.default, copied, [found.images, found.down, found.across, terms])
        image = call_for(node, aten.permute.default, pixels, [0, 3, 1, 2])
        window = call_for(node, aten.permute.default, weight, [0, 2, 3, 1] if innermost else [0, 1, 2, 3])
        whole = call_for(node, aten.clone.default, window, memory_format=torch.contiguous_format)
        matrix = call_for(node, aten.view.default, whole, [-1, terms])
        packed = pairs.lay(node, matrix)
        product = add_call(graph, MULTIPLY_PIXELS, (image, matrix, bias, packed, PAIRS), {}, "convolution")
    product.meta.update(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)


def _beside(node: fx.Node, found: _Patches, innermost: bool) -> fx.Node:
    """Windows that lie side by side, in dims of their own: a view."""
    n, channels, down, across, height, width, *_ = found
    parts = call_for(node, aten.view.default, node.args[0], [n, channels, down, height, across, width])
    return call_for(node, aten.permute.default, parts, [0, 2, 4, 3, 5, 1] if innermost else [0, 2, 4, 1, 3, 5])


def _overlapping(node: fx.Node, found: _Patches) -> fx.Node:
    """Windows of the image with its border around it and the channel innermost: of each row of one a run of memory."""
    n, channels, down, across, height, width, (below, beside), (top, left) = found
    x: Any = node.args[0]
    if found.border != (0, 0):
        x = call_for(node, aten.constant_pad_nd.default, x, [left, left, top, top], 0.0)
    turned = call_for(node, aten.permute.default, x, [0, 2, 3, 1])
    image = call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
    whole, row, _, _ = image.meta["val"].stride()
    size = [n, down, across, height, width * channels]
    return call_for(node, aten.as_strided.default, image, size, [whole, below * row, beside * channels, row, 1])
