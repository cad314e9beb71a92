"""Products of bfloat16 by frozen weights, as loops of ours, where the processor multiplies tiles: which, and by what.

A library's call takes tens of microseconds besides multiplying, makes its result anew and leaves what reads it to
another pass. A loop by the same instructions writes what follows (`kernel/pairs.py`); its weight is laid for it once.
Neighbours: `packing.py` asks for products, `pixels.py` for convolutions with windows of one pixel, `patches.py` for
those with windows side by side; `base/tiling.py` has what a product takes.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch
from torch import fx

from stator.base import pairs, tiling
from stator.base.device import Device
from stator.graphs.calls import is_view
from stator.graphs.nodes import add_call, call_for
from stator.graphs.pairs import MULTIPLY_PAIRS
from stator.passes.products import Product

aten = torch.ops.aten

#: Rows from which on: tiles of fewer are mostly empty.
LEAST_ROWS = 8


def pays(product: Product, device: Device, loops: Set[Any]) -> bool:
    """Whether a loop multiplies: of sizes that are known. `loops` are operators that kernels compute."""
    value: torch.Tensor = product.node.meta["val"]
    (rows, columns), terms = value.shape, product.x.meta["val"].shape[1]
    known = all(type(size) is int for size in (rows, columns, terms))
    faster = known and is_faster(value.dtype, tiling.Product(rows, columns, terms), device)
    return faster and _is_written(product.x, loops)


def _is_written(x: fx.Node, loops: Set[Any]) -> bool:
    """Whether terms lie side by side, or as the kernel has it that computes them: it can write them so."""
    if x.meta["val"].stride()[1] == 1:
        return True
    source: Any = x
    while is_view(source):
        source = source.args[0]
    return source.target in loops


def is_faster(dtype: torch.dtype, size: tiling.Product, device: Device) -> bool:
    """Whether a product of these sizes takes a loop no longer than a library."""
    if not device.multiplies_pairs or dtype is not torch.bfloat16 or min(size) < 2 or size.rows < LEAST_ROWS:
        return False
    return size.time(device) <= size.library_time(device)


def multiply(graph: fx.Graph, product: Product, packed: fx.Node, turned: fx.Node) -> fx.Node:
    """The call that takes a weight in pairs."""
    return add_call(graph, MULTIPLY_PAIRS, (product.x, turned, product.bias, packed), {}, "linear")


def lay(node: fx.Node, matrix: fx.Node) -> fx.Node:
    """A weight (columns, terms) as such a loop reads it; `node` is what it is made for."""
    columns, terms = map(int, matrix.meta["val"].shape)
    wide, long = pairs.filled(columns, terms)
    if (wide, long) != (columns, terms):
        matrix = call_for(node, aten.constant_pad_nd.default, matrix, [0, long - terms, 0, wide - columns], 0.0)
    outer, pair, inner, half = pairs.shape(columns, terms)
    whole = call_for(node, aten.clone.default, matrix, memory_format=torch.contiguous_format)
    parts = call_for(node, aten.view.default, whole, [outer, inner, pair, half])
    turned = call_for(node, aten.permute.default, parts, [0, 2, 1, 3])
    return call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
