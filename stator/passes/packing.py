"""Weights of matrix products, put into the order of the library that computes them, once.

Only under the option `freezing`, and where products are oneDNN's (`lowering/product.py`; those of bfloat16 are so in
eager PyTorch), which else brings the weight into that order in every call, and gives the same bits. Measured on Zen 4
with one thread and two, the products of BERT-base, ViT-B and GPT-2 take 0.75 of the time with 4 to 16 rows, 0.9 with
64, 0.95 with 256 and 512, in float32 and in bfloat16. What is packed has no strides, so nothing may read it but such a
product. Neighbours: `aot/prologue.py`, which gives the packing to the runtime.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST, Device
from stator.fake.symbolic import extents
from stator.graphs.frozen import PACK, frozen
from stator.graphs.nodes import add_call, infer
from stator.sizes import Extent, hint

aten = torch.ops.aten

#: Multiplications from which on it is done: fewer may be a loop (`lowering/product.py`).
_WORK = 2_000_000


@dataclass(frozen=True, slots=True)
class PackWeights:
    """`addmm(b, x, w.t())`  -->  `mkldnn._linear_pointwise(x, packed(w), b)`, for frozen `w`; likewise `mm`."""

    device: Device

    def __call__(self, graph: fx.Graph) -> int:
        takes = {torch.float32: self.device.onednn_products, torch.bfloat16: self.device.onednn_halves}
        dtypes = [dtype for dtype, known in takes.items() if known and torch.backends.mkldnn.enabled]
        known = frozen(graph) if dtypes else set()
        changes = 0
        for target in (aten.mm.default, aten.addmm.default):
            for node in graph.find_nodes(op="call_function", target=target):
                if node.meta["val"].dtype in dtypes and _may_pack(node, known):
                    _pack(graph, node)
                    changes += 1
        return changes


def _may_pack(node: fx.Node, known: Set[fx.Node]) -> bool:
    *bias, x, weight = node.args
    if node.kwargs or weight not in known or x in known:
        return False
    result, right = node.meta["val"], weight.meta["val"]  # type: ignore[union-attr]
    rows, columns = extents(result.shape)
    work = hint(rows * columns) * right.shape[0]
    plain = result.device.type == HOST and right.stride() in _dense(right)
    fits = all(b.meta["val"].shape == (columns,) and b.meta["val"].stride() == (1,) for b in bias)  # type: ignore[union-attr]
    return plain and fits and rows != 1 and work >= _WORK


def _dense(matrix: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """The strides of its rows side by side, and of its columns."""
    rows, columns = matrix.shape
    return (columns, 1), (1, rows)


def _pack(graph: fx.Graph, node: fx.Node) -> None:
    *bias, x, weight = node.args
    rows: Extent = extents(node.meta["val"].shape)[0]
    with graph.inserting_before(node):
        turned = _call(graph, node, aten.permute.default, weight, [1, 0])
        packed = add_call(graph, PACK, (turned, hint(rows)), {}, "packed")
        plain = infer(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
        packed.meta.update(node.meta, val=plain)
        args = (x, packed, *(bias or [None]), "none", [], "")
        product = add_call(graph, torch.ops.mkldnn._linear_pointwise.default, args, {}, "linear")
    product.meta.update(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)


def _call(graph: fx.Graph, like: fx.Node, target: Any, *args: Any) -> fx.Node:
    node = add_call(graph, target, args, {}, target._opname)
    node.meta.update(like.meta, val=infer(target, args, {}))
    return node
