"""Products of one matrix by several frozen weights, as one product by the weights side by side.

Only under the option `freezing`: the weights are joined once. A layer's queries, keys and values, or the two halves of
a gated activation, are then one call of the library, with columns enough for all threads. In bfloat16 on an Intel
processor with AMX and two threads 394 rows by three weights of 768 × 768 take 0.65 of the time, and in the middle of a
model 128 rows 0.85. In float32 by MKL it is 0.95, for a third copy of the weights, and is not done.
Neighbours: `products.py` finds products, `packing.py` packs what is joined.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.graphs.calls import root
from stator.graphs.frozen import frozen
from stator.graphs.nodes import call_for
from stator.passes.products import Product, frozen_products

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class JoinProducts:
    """`mm(x, v), mm(x, w)`  -->  `mm(x, [v w])[:, :n], mm(x, [v w])[:, n:]`; likewise `addmm`, with frozen biases."""

    device: Device

    def __call__(self, graph: fx.Graph) -> int:
        dtypes = {torch.bfloat16} if self.device.onednn_halves and torch.backends.mkldnn.enabled else set()
        groups = self._groups(graph, frozen_products(graph, dtypes))
        made: dict[tuple[fx.Node, ...], fx.Node] = {}  # layers may share their weights
        for group in groups:
            _join(graph, group, made)
        return len(groups)

    def _groups(self, graph: fx.Graph, products: Sequence[Product]) -> list[list[Product]]:
        """What is joined: all that still lies in the cache when the last of it is read."""
        known = frozen(graph) if products else set()
        leaving = {root(node) for node in graph.output_node().all_input_nodes}
        groups: dict[Any, list[Product]] = {}
        for product in products:
            if product.node not in leaving and (product.bias is None or product.bias in known):
                groups.setdefault((product.x, product.bias is None), []).append(product)
        return [part for group in groups.values() for part in self._parts(group) if len(part) > 1]

    def _parts(self, group: list[Product]) -> list[list[Product]]:
        parts: list[list[Product]] = [[]]
        for product in group:
            rows, _, columns = product.size
            columns += sum([other.size.columns for other in parts[-1]])
            if parts[-1] and rows * columns * product.node.meta["val"].itemsize > self.device.cache_bytes:
                parts.append([])
            parts[-1].append(product)
        return parts


def _join(graph: fx.Graph, products: Sequence[Product], made: dict[tuple[fx.Node, ...], fx.Node]) -> None:
    first, x = products[0].node, products[0].x
    weights = tuple([product.weight for product in products])
    biases = tuple([product.bias for product in products if product.bias is not None])
    _move_up(graph, {*weights, *biases}, first)
    with graph.inserting_before(first):
        if weights not in made:
            turned = [call_for(first, aten.permute.default, weight, [1, 0]) for weight in weights]
            rows = call_for(first, aten.cat.default, turned)
            made[weights] = call_for(first, aten.permute.default, rows, [1, 0])
        if biases and biases not in made:
            made[biases] = call_for(first, aten.cat.default, biases)
        if biases:
            product = call_for(first, aten.addmm.default, made[biases], x, made[weights])
        else:
            product = call_for(first, aten.mm.default, x, made[weights])
        start = 0
        for old in products:
            end = start + old.size.columns
            old.node.replace_all_uses_with(call_for(old.node, aten.slice.Tensor, product, 1, start, end))
            start = end
    for old in products:
        graph.erase_node(old.node)


def _move_up(graph: fx.Graph, nodes: Set[fx.Node], place: fx.Node) -> None:
    """Have these nodes, which are computed of parameters alone, computed before `place`."""
    needed, queue = set(nodes), list(nodes)
    for node in queue:
        fresh = [source for source in node.all_input_nodes if source not in needed]
        needed.update(fresh)
        queue += fresh
    order = list(graph.nodes)
    for node in order[order.index(place) :]:
        if node in needed:
            place.prepend(node)
