"""Hold a functional graph against the primitive set: every node known, every dtype as its type rule says.

Runs between the passes and lowering where `options={"verify": True}` asks for it. What is neither a primitive nor
decomposes (an extern call) is let through, since the set says nothing of it.
Neighbours: `set.py` has the rules by overload; `stator.loop.verify` checks what comes after.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from stator.prims.set import PRIMITIVES


class TypeMismatch(AssertionError):
    """A node's dtype is not the one that its type rule gives."""


def verify(graph: fx.Graph) -> None:
    """Raise TypeMismatch, naming the node, where a primitive's results have other dtypes than the set says."""
    for node in graph.nodes:
        primitive = PRIMITIVES.get(node.target) if node.op == "call_function" else None
        if primitive is None:
            continue
        value = node.meta["val"]
        results = value if isinstance(value, (list, tuple)) else [value]
        given = bound(node.target, node.args, node.kwargs)
        for i, (result, rule) in enumerate(zip(results, primitive.types, strict=False)):
            wanted = rule(given)
            if wanted is not None and isinstance(result, torch.Tensor) and result.dtype is not wanted:
                raise TypeMismatch(f"result {i} of {node.format_node()} is {result.dtype}, its type rule says {wanted}")


def bound(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the overload's schema; a node stands for its value."""
    names = [argument.name for argument in op._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: fx.map_arg(value, lambda node: node.meta["val"]) for name, value in given.items()}
