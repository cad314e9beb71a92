"""Convolutions with windows of one pixel and frozen weights, as products: which, and by what.

Only under the option `freezing`, of images that have the channel innermost anyway. A library's convolution takes some
20 µs besides convolving, and its product a few; of few pixels much of the time is that. A loop of ours computes what
follows as it writes, and is the faster one as long as its weight stays in a core's cache.
Neighbours: `convolutions.py`, which packs the other convolutions; `packing.py` has the orders of weights of products.
"""

from __future__ import annotations

from collections.abc import Set
from math import prod
from typing import Any

import torch
from torch import fx

from stator.base import tiling
from stator.base.device import Device
from stator.graphs.convolutions import both
from stator.graphs.frozen import PACK, PACK_BLAS, nbytes
from stator.graphs.nodes import add_call, call_for
from stator.graphs.pixels import BLAS, LOOP, MULTIPLY_PIXELS, ONEDNN, PAIRS
from stator.passes import pairs
from stator.passes.packing import orders_of

aten = torch.ops.aten

_PACKED_BY = {PACK: ONEDNN, PACK_BLAS: BLAS}
#: Pixels up to which a library's product is faster than its convolution, for more multiplications than a loop pays for.
_FEW_PIXELS = 2047
#: Pixels up to which one of MKL's is, with a copy of what it reads, where the convolution steps over pixels.
_STEP_PIXELS = 511
#: Pixels from which on a loop is, where a kernel reads each result, and where none does.
_LOOP_PIXELS, _MANY_PIXELS = 64, 512
#: What part of a core's cache a weight may be for it: what it takes more is brought there for each block of rows.
_PART = 3


def multiply(node: fx.Node, device: Device, loops: Set[Any]) -> bool:
    """Replace `convolution(x, w, b)` by a product where that is faster; `loops` are operators that kernels compute."""
    if not _is_product(node):
        return False
    order = orders_of(device).get(node.meta["val"].dtype)
    if takes_pairs(node, device):
        _replace(node, PAIRS, None)
    elif both(node.args[3]) != [1, 1]:
        if order is None or _PACKED_BY[order.packs] != BLAS or _pixels(node) > _STEP_PIXELS:
            return False
        _replace(node, BLAS, order.packs)
    elif _takes_loop(node, device, loops):
        _replace(node, LOOP, None)
    elif order is not None and _pixels(node) <= _FEW_PIXELS:
        _replace(node, _PACKED_BY[order.packs], order.packs)
    else:
        return False
    return True


def _is_product(node: fx.Node) -> bool:
    """Whether each result is a sum over the channels of one pixel."""
    args: Any = node.args
    x, weight, _, _, padding, _, _, _, groups = args
    window = tuple(weight.meta["val"].shape[2:])
    one: bool = window == (1, 1) and both(padding) == [0, 0]
    return one and bool(groups == 1 and x.meta["val"].shape[1] > 1)


def _pixels(node: fx.Node) -> int:
    size = node.meta["val"].shape
    return int(size[0] * prod(size[2:]))


def _takes_loop(node: fx.Node, device: Device, loops: Set[Any]) -> bool:
    """Whether a loop multiplies: of float32, by a weight that a core keeps, and many pixels or what else it saves."""
    read = all(user.target in loops for user in node.users)
    fits: bool = device.product_blocks and _pixels(node) >= (_LOOP_PIXELS if read else _MANY_PIXELS)
    weight: torch.Tensor = node.args[1].meta["val"]  # type: ignore[union-attr]
    return fits and weight.dtype is torch.float32 and _PART * nbytes(weight) <= device.cache_bytes


def takes_pairs(node: fx.Node, device: Device) -> bool:
    """Whether a kernel multiplies bfloat16 by instructions for pairs of terms, with what follows."""
    if not device.multiplies_pairs or not _is_product(node):
        return False
    weight: torch.Tensor = node.args[1].meta["val"]  # type: ignore[union-attr]
    results, channels = weight.shape[:2]
    return pairs.is_faster(weight.dtype, tiling.Product(_pixels(node), results, channels), device)


def _replace(node: fx.Node, by: str, packs: Any) -> None:
    graph = node.graph
    x, weight, bias, stride, *_ = node.args
    rows = _pixels(node)
    with graph.inserting_before(node):
        for dim, step in enumerate(both(stride), 2):
            if step != 1:
                x = call_for(node, aten.slice.Tensor, x, dim, 0, x.meta["val"].shape[dim], step)  # type: ignore[union-attr]
        matrix = call_for(node, aten.view.default, weight, [*weight.meta["val"].shape[:2]])  # type: ignore[union-attr]
        packed = None
        if by == PAIRS:
            packed = pairs.lay(node, matrix)
        elif packs is not None:
            packed = add_call(graph, packs, (matrix, rows), {}, "packed")
            packed.meta.update(node.meta, val=matrix.meta["val"])
        else:  # columns are lanes, so these lie side by side
            turned = call_for(node, aten.permute.default, matrix, [1, 0])
            laid = call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
            matrix = call_for(node, aten.permute.default, laid, [1, 0])
        product = add_call(graph, MULTIPLY_PIXELS, (x, matrix, bias, packed, by), {}, "convolution")
    product.meta.update(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)
