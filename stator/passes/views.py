"""Views of views: a chain of views of one kind becomes one view of the chain's origin.

The strides of the result stay as they were. The inner views may be dead afterwards, or the one left may do nothing:
`RemoveDead` and `RemoveNoOps` see to that. Neighbour: `pipeline.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.base.records import dataclass

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class ComposeViews:
    """`x.view(a).view(b)`  -->  `x.view(b)`; `x.permute(p).permute(q)`  -->  `x.permute(p∘q)`; expands likewise."""

    def __call__(self, graph: fx.Graph) -> int:
        changes = 0
        for node in graph.nodes:
            compose = _COMPOSE.get(node.target) if node.op == "call_function" else None
            inner = node.args[0] if compose is not None else None
            if not isinstance(inner, fx.Node) or inner.target is not node.target:
                continue
            assert compose is not None
            args = compose(inner, node)
            if args is not None:
                node.args = args
                changes += 1
        return changes


def _views(inner: fx.Node, outer: fx.Node) -> tuple[Any, ...] | None:
    origin = inner.args[0]
    assert isinstance(origin, fx.Node)
    # Two views can reach a shape that one cannot (through a size-1 split of strided memory): ask for plain memory.
    if not origin.meta["val"].is_contiguous():
        return None
    return origin, list(outer.meta["val"].shape)


def _permutes(inner: fx.Node, outer: fx.Node) -> tuple[Any, ...]:
    first: Any = inner.args[1]
    second: Any = outer.args[1]
    rank = len(first)
    return inner.args[0], [first[dim] % rank for dim in second]


def _expands(inner: fx.Node, outer: fx.Node) -> tuple[Any, ...]:
    return inner.args[0], list(outer.meta["val"].shape)


_COMPOSE: dict[Any, Any] = {
    aten.view.default: _views,
    aten.permute.default: _permutes,
    aten.expand.default: _expands,
}
