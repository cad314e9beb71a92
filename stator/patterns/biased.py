"""Attention with a bias by PyTorch's memory-efficient kernel, where what PyTorch takes on a GPU is slower.

**Few keys**, as windows of images have: PyTorch takes cuDNN's kernel on the GPUs that have one, whose tiles such a
window does not fill. The memory-efficient one takes 0.43 of the time (2048 windows of 49 with 3 heads, bfloat16, H100;
0.51 with gradients). **A bias whose rows lie apart** (T5's, which is a table's rows turned over): no kernel takes it,
so PyTorch multiplies and adds scores in float32, and keeps two matrices of them for backward; a copy of the bias is
small beside that. The kernel is called as `scaled_dot_product_attention` would call it: with a bias whose rows begin at
multiples of 16 elements.
Neighbours: `masks.py`, `rewrite.py`; `lowering` leaves the call as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from stator.base.device import HOST
from stator.fake.symbolic import is_symbolic
from stator.graphs.nodes import module
from stator.patterns.masks import argument
from stator.patterns.normal import tensor

KERNEL = torch.ops.aten._scaled_dot_product_efficient_attention.default
HALVES = (torch.bfloat16, torch.float16)
#: Keys and queries, and elements of a head, up to which it is faster than cuDNN's; elements of a head up to which it
#: needs one pass over them; and what a bias's rows are multiples of.
_KEYS, _WIDTH, _WIDEST, _ALIGNMENT = 64, 64, 128, 16


def choose(gm: fx.GraphModule, recorded: bool = False) -> fx.GraphModule:
    """The graph with such calls as calls of that kernel; the same object where there are none.

    `recorded`: calls are kept by the device. Dropout and gradients read a seed in the host's memory, so a recording is
    cut there, which takes the host longer than products take the device.
    """
    wanted = {node for node in gm.graph.nodes if _is_taken(node, recorded)}
    if not wanted or not torch._C._get_mem_efficient_sdp_enabled():
        return gm
    graph, nodes = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        made = _called(graph, node, nodes) if node in wanted else graph.node_copy(node, nodes.__getitem__)
        nodes[node] = made
    found = module(graph, type(gm).__name__, gm)
    found.meta.update(gm.meta)
    return found


def _is_taken(node: fx.Node, recorded: bool) -> bool:
    if node.target is not F.scaled_dot_product_attention:
        return False
    q, k, v, bias = values = [tensor(argument(node, name)) for name in ("query", "key", "value", "attn_mask")]
    if q is None or k is None or v is None or bias is None or argument(node, "is_causal"):
        return False
    if node.kwargs.get("enable_gqa") or q.device.type == HOST or {q.dtype, k.dtype, v.dtype} - {q.dtype}:
        return False
    sizes = [size for value in values if value is not None for size in value.shape]
    if q.dtype not in HALVES or not bias.is_floating_point() or is_symbolic(sizes) or {q.dim(), bias.dim()} != {4}:
        return False
    result = tensor(node)
    if result is None or min(sizes) <= 0 or q.shape[3] % 8 or v.shape[3] % 8:
        return False
    cut = recorded and (_trains(values) or _dropout(node) > 0)
    if _lies_apart(bias) and not cut and not torch.are_deterministic_algorithms_enabled():
        return max(q.shape[3], v.shape[3]) <= _WIDEST and (_heads_inside(result) or result.is_contiguous())
    few = max(*q.shape[2:], *k.shape[2:]) <= max(_KEYS, _WIDTH) and max(q.shape[3], v.shape[3]) <= _WIDTH
    return few and _heads_inside(result)


def _trains(values: Sequence[torch.Tensor | None]) -> bool:
    """Whether a gradient of one of these is wanted."""
    return torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in values)


def _dropout(node: fx.Node) -> float:
    return float(argument(node, "dropout_p") or 0.0)


def _lies_apart(bias: torch.Tensor) -> bool:
    """Whether the elements of a row are not side by side."""
    return bias.shape[3] > 1 and bias.stride(3) != 1


def _heads_inside(result: torch.Tensor) -> bool:
    """Whether the heads of a row are side by side, as the kernel's result lies and in no other way."""
    _, heads, queries, width = result.shape
    return result.stride() == (queries * heads * width, width, heads * width, 1)


def _called(graph: fx.Graph, node: fx.Node, nodes: dict[fx.Node, fx.Node]) -> fx.Node:
    """The call in another graph."""
    given = [argument(node, name) for name in ("query", "key", "value", "attn_mask")]
    q, k, _, bias = values = [tensor(value) for value in given]
    assert q is not None and k is not None and bias is not None
    query, key, value, mask = [nodes[value] for value in given]

    def call(kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = graph.create_node(kind, target, args, kwargs)
        made.meta.update({name: known for name, known in node.meta.items() if name != "val"})
        return made

    length = k.shape[2]
    if bias.dtype is not q.dtype:  # under autocast
        mask = call("call_method", "to", mask, q.dtype)
    if bias.shape[3] != length:  # one bias for all keys
        mask = call("call_method", "expand", mask, -1, -1, -1, length)
    if _lies_apart(bias):
        mask = call("call_method", "contiguous", mask)
    if length % _ALIGNMENT:
        mask = call("call_function", F.pad, mask, (0, -length % _ALIGNMENT))
        mask = call("call_function", operator.getitem, mask, (Ellipsis, slice(0, length)))
    mask = call("call_method", "expand", mask, *q.shape[:3], length)
    scale = node.kwargs.get("scale")
    made = call("call_function", KERNEL, query, key, value, mask, _trains(values), _dropout(node), False, scale=scale)
    result = call("call_function", operator.getitem, made, 0)
    shown = tensor(node)
    if shown is not None and not _heads_inside(shown):
        result = call("call_method", "contiguous", result)
    result.meta.update(node.meta)
    return result
