"""The tensors that a captured graph reaches by itself: parameters, buffers and constants.

Their order is that of first use; both a fresh trace and the binding of a stored artifact rely on it, so it is decided
here and only here. Neighbours: `trace.py` makes inputs of them, `stator.driver` binds the live objects.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def lifted(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The parameters, buffers and other tensors that the graph reaches by itself, each once, in order of first use."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            named = [(str(node.target), attribute(gm, node.target))]
        elif node.op == "call_module":
            named = tensors_of(gm.get_submodule(node.target), node.target)
        else:
            continue
        for name, tensor in named:
            if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor
    return found


def attribute(gm: fx.GraphModule, target: str) -> Any:
    """What a `get_attr` node gives."""
    value: Any = gm
    for name in target.split("."):
        value = getattr(value, name)
    return value


def tensors_of(module: torch.nn.Module, prefix: str) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a module, under their names after a prefix."""
    lead = f"{prefix}." if prefix else ""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return [(lead + name, tensor) for name, tensor in named]
