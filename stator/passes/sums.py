"""Sums of products, as one product of more terms.

A layer that runs several times, in an unrolled loop or as ALBERT's do, gives its weight a product of a gradient and an
input each time. Their sum is the product of all gradients by all inputs, each put one below the other: a library adds
it up while it multiplies, no product is written and read again, and none is kept for a sum at the end. What that costs
is a copy of the operands, which mostly is made where they are computed. Twelve products of 3072 × 128 by 128 × 768 and
their sum take 31.4 ms, one with the copies 25.0; of 768 × 16 by 16 × 768 they take 1.53 and 0.83 (Intel Xeon, two
threads). Neighbours: `pipeline.py`, `joining.py` (products side by side).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.fake.symbolic import is_symbolic
from stator.graphs.nodes import call_for

aten = torch.ops.aten

_WIDE = (torch.float32, torch.float64)  # each product of others is rounded
#: Elements from which on products are joined: smaller ones are loops, which the sum is a part of.
_LEAST_ELEMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """`add(mm(a, b), mm(c, d))`  -->  `mm([a c], [b; d])`, likewise of more products, each used only there."""

    device: Device

    def __call__(self, graph: fx.Graph) -> int:
        if not self.device.host:  # measured there alone
            return 0
        changes = 0
        for node in reversed(graph.find_nodes(op="call_function", target=aten.add.Tensor)):
            if node.users and _is_plain(node) and (terms := _terms(node)):
                _join(graph, node, terms)
                changes += 1
        return changes


def _is_plain(node: Any) -> bool:
    return node.target is aten.add.Tensor and len(node.args) == 2 and not node.kwargs


def _terms(total: fx.Node) -> list[fx.Node]:
    """The products that a sum is of, in the order of the program, if it is of nothing else and joining them pays."""
    products: list[fx.Node] = []
    queue: list[Any] = list(total.args)
    while queue:
        term = queue.pop()
        if not isinstance(term, fx.Node) or len(term.users) != 1 or not _is_alike(term, total):
            return []
        if term.target is aten.mm.default:
            products.append(term)
        elif _is_plain(term):
            queue += term.args
        else:
            return []
    return products[::-1] if len(set(products)) == len(products) and _pays(total, products) else []


def _is_alike(term: fx.Node, total: fx.Node) -> bool:
    """Of the same known size and type, row by row: symbolic sizes are not compared, which would guard them."""
    found, wanted = term.meta["val"], total.meta["val"]
    if is_symbolic([*found.shape, *wanted.shape]):
        return False
    return bool(found.shape == wanted.shape and found.dtype is wanted.dtype and found.is_contiguous())


def _pays(total: fx.Node, products: Sequence[fx.Node]) -> bool:
    """Whether operands are copied in less time than products are written and read."""
    value = total.meta["val"]
    shapes = [product.args[0].meta["val"].shape for product in products]  # type: ignore[union-attr]
    sizes = [*value.shape, *[shape[1] for shape in shapes]]
    if value.dtype not in _WIDE or is_symbolic(sizes):
        return False
    rows, columns, *terms = sizes
    copied = sum(terms) * (rows + columns)
    return rows * columns >= _LEAST_ELEMENTS and min(terms) > 1 and 2 * copied <= len(terms) * rows * columns


def _join(graph: fx.Graph, total: fx.Node, products: Sequence[fx.Node]) -> None:
    sides: list[list[Any]] = [[product.args[side] for product in products] for side in (0, 1)]
    with graph.inserting_before(total):
        left, right = _joined(total, sides[0], 1), _joined(total, sides[1], 0)
        made = call_for(total, aten.mm.default, left, right)
    total.replace_all_uses_with(made)
    unused: list[Any] = [total]
    for node in unused:  # the sums and their products
        unused += node.args if _is_plain(node) else ()
        graph.erase_node(node)
    for operand in dict.fromkeys([*sides[0], *sides[1]]):
        if operand.target is aten.permute.default and not operand.users:
            graph.erase_node(operand)


def _joined(node: fx.Node, matrices: Sequence[Any], dim: int) -> fx.Node:
    """Matrices side by side or one below the other; of transposed ones, what was transposed is joined."""
    if all(matrix.target is aten.permute.default for matrix in matrices):
        whole = call_for(node, aten.cat.default, [matrix.args[0] for matrix in matrices], 1 - dim)
        return call_for(node, aten.permute.default, whole, [1, 0])
    return call_for(node, aten.cat.default, list(matrices), dim)
