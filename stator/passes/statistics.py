"""What an operator's own backward alone reads of its forward stays as wide as it was computed, under fast numerics.

Eager's norms of half types give their mean as a half type, which backward subtracts from the operand: both are rounded,
and of a single number nothing is left. Where fast numerics leave the operand unrounded, a rounded mean is off by up to
a 512th of it, which the deviation may be a small part of.
Neighbours: `loop/rounding.py` leaves roundings out within kernels; `aot/partition.py` decides what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

aten = torch.ops.aten
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class WidenStatistics:
    """`m = bf16(x)` in forward, `f32(m)` in backward of the same operator  -->  `x` there; in a joint graph."""

    def __call__(self, graph: fx.Graph) -> int:
        found = [node for node in _casts(graph) if _is_read_back(node)]
        for node in found:
            for user in list(node.users):
                user.replace_all_uses_with(node.all_input_nodes[0])
                graph.erase_node(user)
            graph.erase_node(node)
        return len(found)


def _casts(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="call_function", target=aten._to_copy.default))


def _is_read_back(node: fx.Node) -> bool:
    """Whether a cast in forward is to a half type, and only its operator's own backward reads it, as what it was."""
    (source,) = node.all_input_nodes
    wide = source.meta["val"]
    narrows = wide.dtype is torch.float32 and node.meta["val"].dtype in _HALVES
    if not narrows or node.meta["phase"] != "forward":
        return False
    return bool(node.users) and all(_widens(user, wide) and _is_backward_of(user, node) for user in node.users)


def _widens(node: fx.Node, wide: torch.Tensor) -> bool:
    if node.target is not aten._to_copy.default:
        return False
    found = node.meta["val"]
    return (found.dtype, found.stride(), found.device) == (wide.dtype, wide.stride(), wide.device)


def _is_backward_of(node: fx.Node, forward: fx.Node) -> bool:
    names = [item.meta.get("operator") for item in (node, forward)]
    same = node.meta.get("step") == forward.meta.get("step")
    return node.meta["phase"] == "backward" and same and names[0] == f"{names[1]}_backward"
