"""Products of float32 whose factors were halves before, as products of halves that are given in float32.

So attention multiplies queries and keys where it is computed in float32: PyTorch's plain formula widens what autocast
has narrowed. The product of two halves is exact in float32, and sums are in float32 either way, so results are those of
the product of float32, up to the order of sums; on tensor cores it takes a third of the time (128 of 256 x 64 x 256 on
an H100: 34 and 11 µs), and no factor is widened in memory.
Neighbours: `halves.py` goes the other way, where a processor wants it; `Device.wide_products` says where this pays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.graphs.calls import is_view
from stator.graphs.nodes import call_for

aten = torch.ops.aten

#: Products → the same of halves, given in another dtype.
_WIDE = {aten.mm.default: aten.mm.dtype, aten.bmm.default: aten.bmm.dtype}
_HALVES = {torch.bfloat16, torch.float16}


def narrow(graph: fx.Graph, device: Device) -> dict[fx.Node, fx.Node]:
    """Multiply halves where both factors were; gives what stands for the nodes that are gone."""
    gone: dict[fx.Node, fx.Node] = {}
    if not device.wide_products:
        return gone
    for target, wide in _WIDE.items():
        for node in graph.find_nodes(op="call_function", target=target):
            if node.meta["val"].dtype is not torch.float32 or 0 in node.meta["val"].shape:
                continue
            chains = [_chain(factor) for factor in node.args]
            dtypes = {chain[-1].args[0].meta["val"].dtype for chain in chains if chain}  # type: ignore[union-attr]
            if not all(chains) or len(dtypes) != 1 or not dtypes <= _HALVES:
                continue
            with graph.inserting_before(node):
                made = call_for(node, wide, *[_narrowed(chain, node) for chain in chains], torch.float32)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            gone[node] = made
    return gone


def _chain(factor: Any) -> list[fx.Node]:
    """The nodes from a factor back to the conversion that it is made of, which is the last; none if there is more."""
    chain = [factor]
    while chain[-1].target is not aten._to_copy.default:
        node = chain[-1]
        moves = is_view(node) or node.target is aten.clone.default
        if node.op != "call_function" or not (moves or _is_times_one(node)):
            return []
        chain.append(node.args[0])
    given = chain[-1].args[0].meta["val"]
    return chain if given.device == factor.meta["val"].device and given.layout is torch.strided else []


def _is_times_one(node: fx.Node) -> bool:
    """As attention scales by one."""
    return node.target is aten.mul.Tensor and node.args[1] in (1, 1.0)


def _narrowed(chain: list[fx.Node], product: fx.Node) -> fx.Node:
    """What a factor is before it is widened, moved as the factor is."""
    *moves, widened = chain
    made: Any = widened.args[0]
    for move in reversed(moves):
        if not _is_times_one(move):
            made = call_for(product, move.target, made, *move.args[1:], **move.kwargs)
    return made
