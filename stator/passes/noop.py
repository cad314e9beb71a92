"""Operators that do nothing: copies of equal layout, views of equal shape, casts to the type at hand.

Neighbour: `memory.py` says where a copy is more than its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.base.records import dataclass
from stator.fake.layout import OPAQUE_DTYPES
from stator.fake.symbolic import extents
from stator.graphs.calls import is_view
from stator.passes.memory import Escapes

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class RemoveNoOps:
    """`y = clone(x)` of the same layout, `y = x.view(x.size)`, `y = x * 1`  -->  `x`."""

    def __call__(self, graph: fx.Graph) -> int:
        escapes = Escapes(graph)
        changes = 0
        for node in graph.nodes:
            source = _source(node) if node.op == "call_function" else None
            if source is not None and _same_geometry(source, node) and not _keeps(escapes, source, node):
                escapes.replace(node, source)
                changes += 1
        return changes


def _keeps(escapes: Escapes, source: fx.Node, node: fx.Node) -> bool:
    """Whether the node must stay because a caller can tell it from its source."""
    if is_view(node):
        return node in escapes.outputs and (source in escapes.outputs or source.op == "placeholder")
    return not escapes.may_stand_for(source, node)


def _same_geometry(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    if not isinstance(x, torch.Tensor) or x.dtype is not y.dtype or x.device != y.device:
        return False
    if x._has_symbolic_sizes_strides or y._has_symbolic_sizes_strides:
        return extents(x.shape) == extents(y.shape) and extents(x.stride()) == extents(y.stride())
    return x.shape == y.shape and x.stride() == y.stride()


def _first(node: fx.Node) -> Any:
    return node.args[0]


def _wide_and_back(node: fx.Node) -> Any:
    """`x.to(wider).to(x.dtype)`  -->  `x`: widening loses nothing."""
    inner = node.args[0]
    assert isinstance(inner, fx.Node)
    if inner.target is aten._to_copy.default:
        origin = inner.args[0]
        assert isinstance(origin, fx.Node)
        before, between = origin.meta["val"].dtype, inner.meta["val"].dtype
        if before is node.meta["val"].dtype and _holds(between, before) and before != between:
            return origin
    return inner


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether one dtype has every value of the other, as far as it is known: nothing is promoted to 8-bit floats."""
    return not OPAQUE_DTYPES & {wide, narrow} and torch.promote_types(narrow, wide) is wide


def _times_one(node: fx.Node) -> Any:
    """`x * 1` and `x / 1` keep every bit of a real `x` (NaN payloads aside); a complex 1 turns infinities to NaN."""
    one = isinstance(node.args[1], int | float) and node.args[1] == 1
    return node.args[0] if one and not node.meta["val"].is_complex() else None


def _unpadded(node: fx.Node) -> Any:
    return None if any(node.args[1]) else node.args[0]  # type: ignore[arg-type]


#: Overload → which argument it gives back, if size, strides and dtype are equal (or None).
_SOURCES: dict[Any, Callable[[fx.Node], Any]] = {
    aten.clone.default: _first,
    aten._to_copy.default: _wide_and_back,
    aten.view.default: _first,
    aten.expand.default: _first,
    aten.permute.default: _first,
    aten.slice.Tensor: _first,
    aten.squeeze.dims: _first,
    aten.constant_pad_nd.default: _unpadded,
    aten.mul.Tensor: _times_one,
    aten.div.Tensor: _times_one,
}


def _source(node: fx.Node) -> fx.Node | None:
    find = _SOURCES.get(node.target)
    source = find(node) if find is not None else None
    return source if isinstance(source, fx.Node) else None
