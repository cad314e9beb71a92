"""Matrix products by frozen weights, as passes look for them.

Neighbours: `joining.py` joins those of one operand, `packing.py` packs their weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from torch import fx

from stator.base.device import HOST
from stator.base.records import dataclass
from stator.fake.symbolic import extents
from stator.graphs.frozen import frozen
from stator.sizes import hint

aten = torch.ops.aten


class Size(NamedTuple):
    """Of a product: rows and columns of the result, terms of each sum."""

    rows: int
    terms: int
    columns: int

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.rows * self.terms * self.columns


@dataclass(frozen=True, slots=True)
class Product:
    """A call of `mm` or `addmm`, `x @ weight + bias`, with the operands that it has by now."""

    node: fx.Node

    @property
    def x(self) -> fx.Node:
        return self.node.args[-2]  # type: ignore[return-value]

    @property
    def weight(self) -> fx.Node:
        return self.node.args[-1]  # type: ignore[return-value]

    @property
    def bias(self) -> fx.Node | None:
        return self.node.args[0] if len(self.node.args) == 3 else None  # type: ignore[return-value]

    @property
    def size(self) -> Size:
        """With symbolic rows as they are in the call met first."""
        rows, columns = extents(self.node.meta["val"].shape)
        return Size(hint(rows), hint(extents(self.weight.meta["val"].shape)[0]), hint(columns))


def frozen_products(graph: fx.Graph, dtypes: Collection[torch.dtype]) -> list[Product]:
    """Those on the CPU whose weight is frozen and dense, whose bias is a row, and whose other operand is not frozen."""
    found = list(_products(graph, dtypes))
    known = frozen(graph) if found else set()
    return [product for product in found if product.weight in known and product.x not in known]


def _products(graph: fx.Graph, dtypes: Collection[torch.dtype]) -> Iterator[Product]:
    for target in (aten.mm.default, aten.addmm.default):
        for node in graph.find_nodes(op="call_function", target=target):
            value = node.meta["val"]
            if value.dtype not in dtypes or value.device.type != HOST or node.kwargs:
                continue
            product = Product(node)
            if _is_dense(product.weight) and (product.bias is None or _is_row(product.bias, extents(value.shape)[1])):
                yield product


def _is_dense(matrix: fx.Node) -> bool:
    """Whether its rows, or its columns, lie side by side."""
    rows, columns = extents(matrix.meta["val"].shape)
    return extents(matrix.meta["val"].stride()) in ((columns, 1), (1, rows))


def _is_row(bias: fx.Node, columns: object) -> bool:
    value = bias.meta["val"]
    return extents(value.shape) == (columns,) and extents(value.stride()) == (1,)
