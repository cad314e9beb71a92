"""Weights of matrix products, put into the order of the library that computes them, once.

Only under the option `freezing`. A library that is given a weight as the program has it brings it into its own order in
every call; `_ONEDNN` and `_BLAS` are the two that can keep it so, each with the products for which that pays: oneDNN
where it would multiply anyway (`lowering/product.py`; bfloat16 in eager PyTorch too), and MKL, which may take sums in
another order then. What is packed has no strides, so nothing may read it but such a product.
Neighbours: `products.py` finds them, `aot/prologue.py` gives the packing to the runtime; docs/freezing.md has figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from stator.base.device import Device
from stator.fake.symbolic import extents
from stator.graphs.frozen import BLAS_PRODUCT, PACK, PACK_BLAS, PRODUCT
from stator.graphs.nodes import add_call, call_for, infer
from stator.passes import pairs
from stator.passes.products import Product, frozen_products

aten = torch.ops.aten

#: Multiplications from which on it is done: fewer may be a loop (`lowering/product.py`).
_WORK = 2_000_000
#: Rows up to which oneDNN gives products of bfloat16 by packed weights to all threads, and columns from which it does.
_MANY_ROWS, _FEW_COLUMNS = 256, 1536
#: Rows from which on MKL copies a weight in a time that does not count beside the product.
_MANY = 2048


class Order(NamedTuple):
    """A library's: what brings a weight (columns, terms) into it, for what products, and the one that takes it."""

    packs: Any
    pays: Callable[[Product], bool]
    product: Callable[[fx.Graph, Product, fx.Node, fx.Node], fx.Node]


@dataclass(frozen=True, slots=True)
class PackWeights:
    """`addmm(b, x, w.t())`  -->  `mkldnn._linear_pointwise(x, packed(w), b)`, or that of MKL; likewise `mm`."""

    device: Device
    loops: Set[Any]  # the operators that kernels of ours compute

    def __call__(self, graph: fx.Graph) -> int:
        done: dict[tuple[fx.Node, int, Any], tuple[fx.Node, fx.Node]] = {}
        changes = 0
        orders = orders_of(self.device)
        for product in frozen_products(graph, {*orders, torch.bfloat16}):
            if (order := _order(product, orders, self)) is not None:
                key = product.weight, product.size.rows, order.packs
                if key not in done:  # layers may share their weights
                    done[key] = _pack(graph, product, order)
                _replace(graph, product, order, *done[key])
                changes += 1
        return changes


def _order(product: Product, orders: Mapping[torch.dtype, Order], by: PackWeights) -> Order | None:
    """The order that pays for a product."""
    if pairs.pays(product, by.device, by.loops):
        return _PAIRS
    order = orders.get(product.node.meta["val"].dtype)
    return order if order is not None and product.size.work >= _WORK and order.pays(product) else None


def orders_of(device: Device) -> dict[torch.dtype, Order]:
    """By the dtype of the product."""
    onednn = torch.backends.mkldnn.enabled
    found = {torch.bfloat16: _ONEDNN} if device.onednn_halves and onednn else {}
    if device.onednn_products and onednn:
        found[torch.float32] = _ONEDNN
    elif device.blas_packs:
        found[torch.float32] = _BLAS
    return found


def _pack(graph: fx.Graph, product: Product, order: Order) -> tuple[fx.Node, fx.Node]:
    """The weight in the order of the library, and as (columns, terms)."""
    node = product.node
    with graph.inserting_before(node):
        turned = call_for(node, aten.permute.default, product.weight, [1, 0])
        if order is _PAIRS:
            return pairs.lay(node, turned), turned
        packed = add_call(graph, order.packs, (turned, product.size.rows), {}, "packed")
    plain = infer(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
    packed.meta.update(node.meta, val=plain)
    return packed, turned


def _replace(graph: fx.Graph, product: Product, order: Order, packed: fx.Node, turned: fx.Node) -> None:
    with graph.inserting_before(product.node):
        result = order.product(graph, product, packed, turned)
    result.meta.update(product.node.meta)
    product.node.replace_all_uses_with(result)
    graph.erase_node(product.node)


def _by_onednn(graph: fx.Graph, product: Product, packed: fx.Node, turned: fx.Node) -> fx.Node:
    return add_call(graph, PRODUCT, (product.x, packed, product.bias, "none", [], ""), {}, "linear")


def _by_blas(graph: fx.Graph, product: Product, packed: fx.Node, turned: fx.Node) -> fx.Node:
    """The bias is added by the kernel that reads the result: the library copies it over all rows before."""
    args = product.x, packed, turned, None, product.size.rows
    result = add_call(graph, BLAS_PRODUCT, args, {}, "linear")
    result.meta.update(product.node.meta)
    return result if product.bias is None else call_for(product.node, aten.add.Tensor, result, product.bias)


def _pays_onednn(product: Product) -> bool:
    """It gives a result of many rows and few columns to one thread: of bfloat16 by a packed weight from fewer on."""
    rows, _, columns = product.size
    halves = product.node.meta["val"].dtype is torch.bfloat16
    return rows > 1 and not (halves and rows > _MANY_ROWS and columns < _FEW_COLUMNS)


def _pays_blas(product: Product) -> bool:
    """It copies the other operand where that does not lie row by row."""
    return 1 < product.size.rows < _MANY and extents(product.x.meta["val"].stride()) == (product.size.terms, 1)


_PAIRS = Order(None, lambda product: True, pairs.multiply)  # `pairs.lay` brings weights into it
_ONEDNN = Order(PACK, _pays_onednn, _by_onednn)
_BLAS = Order(PACK_BLAS, _pays_blas, _by_blas)
