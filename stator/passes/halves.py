"""Products of bfloat16 as products of float32, where a processor without matrix units multiplies those faster.

A number of bfloat16 is one of float32, and so is the product of two, nearly: the library adds them up in float32
either way and rounds once. What is paid is the conversion of the operands, a copy of each; kernels that compute an
operand write it as float32 at once.
Neighbours: `Device.widens_halves` says where; `joining.py` and `packing.py` see float32 afterwards.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST, Device
from stator.fake.symbolic import extents
from stator.graphs.calls import root
from stator.graphs.frozen import frozen
from stator.graphs.nodes import add_call, call_for
from stator.sizes import hint

aten = torch.ops.aten

#: Multiplications that a product needs to be widened, in all, and for each element that is converted for it: in a pass
#: of its own; once, and read at every call as twice the bytes; or by a kernel that computes or reads it anyway.
_LEAST_WORK, _COPIED, _FROZEN, _COMPUTED = 1 << 22, 32, 16, 8


@dataclass(frozen=True, slots=True)
class WidenProducts:
    """`mm(a, b)` of bfloat16  -->  `mm(a.float(), b.float()).bfloat16()`; convolutions of all channels likewise."""

    device: Device
    loops: Set[Any]  # the operators that kernels of ours compute

    def __call__(self, graph: fx.Graph) -> int:
        if not self.device.widens_halves:
            return 0
        products = [n for target in _OPERANDS for n in graph.find_nodes(op="call_function", target=target)]
        known = frozen(graph)
        found = [node for node in products if _pays(node, self.loops, known)]
        for node in found:
            _widen(node)
        return len(found)


#: Products → which of their arguments are tensors.
_OPERANDS: dict[Any, tuple[int, ...]] = {
    aten.mm.default: (0, 1),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (0, 1, 2),
    aten.baddbmm.default: (0, 1, 2),
    aten.convolution.default: (0, 1, 2),
}


def _operands(node: fx.Node) -> list[fx.Node]:
    return [node.args[place] for place in _OPERANDS[node.target] if isinstance(node.args[place], fx.Node)]  # type: ignore[misc]


def _pays(node: fx.Node, loops: Set[Any], known: Set[fx.Node]) -> bool:
    """Whether multiplying takes so long that conversions do not matter; with symbolic sizes as in the call at hand.

    What depends on parameters alone is `known`.
    """
    value = node.meta["val"]
    if value.device.type != HOST or any(x.meta["val"].dtype is not torch.bfloat16 for x in (node, *_operands(node))):
        return False
    convolution = node.target is aten.convolution.default
    if convolution and (node.args[8] != 1 or node.args[6]):  # of single channels, or transposed
        return False
    sizes = [[hint(n) for n in extents(x.meta["val"].shape)] for x in (node, *_operands(node))]
    right = sizes[2] if convolution else sizes[-1]
    terms = prod(right[1:]) if convolution else right[-2]
    work = prod(sizes[0]) * terms
    rates = [_COMPUTED if all(user.target in loops for user in node.users) else _COPIED]
    rates += [_rate(x, loops, known) for x in _operands(node)]
    return work >= max(_LEAST_WORK, sum([prod(size) * rate for size, rate in zip(sizes, rates, strict=True)]))


def _rate(operand: fx.Node, loops: Set[Any], known: Set[fx.Node]) -> int:
    """What an element of an operand costs: a transposed parameter is no more computed here than the parameter."""
    source = root(operand)
    return _FROZEN if source in known else _COMPUTED if source.target in loops else _COPIED


def _widen(node: fx.Node) -> None:
    graph, args = node.graph, list(node.args)
    with graph.inserting_before(node):
        for place in _OPERANDS[node.target]:
            if isinstance(args[place], fx.Node):
                args[place] = call_for(node, aten._to_copy.default, args[place], dtype=torch.float32)
        product = call_for(node, node.target, *args, **node.kwargs)
        narrow = add_call(graph, aten._to_copy.default, (product,), {"dtype": torch.bfloat16}, node.name)
    narrow.meta.update(node.meta)
    node.replace_all_uses_with(narrow)
    graph.erase_node(node)
