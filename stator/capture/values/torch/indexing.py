"""Indexing a tensor by ints that are symbolic: PyTorch's own indexing asks for their numbers, `select` does not.

    x[:, t, 0]  -->  x.select(1, t)[:, 0]          x[t] = y  -->  x.select(0, t)[...] = y

Neighbours: `tensor.py` (asks `selected` before it indexes), `symbolic.py` (the ints).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stator.capture.values.python.constant import ConstantValue, SliceValue
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Marks a key of which nothing is left.
WHOLE = fresh(Ellipsis)


def is_symbolic_int(part: Value) -> bool:
    """Whether a part of a key differs from call to call."""
    return isinstance(part, SymbolicValue) and part.is_symbolic()


def selected(tx: Machine, tensor: Any, key: Value, call_graph: Callable[..., Any]) -> tuple[Any, Value]:
    """The tensor at the symbolic ints of a key, and what is left of the key; both as they are where there are none."""
    parts: Sequence[Value] = key.items if isinstance(key, TupleValue) and key.cls is tuple else (key,)
    if not any(map(is_symbolic_int, parts)):
        return tensor, key
    widths = [dims_of(part) for part in parts]
    taken = sum(width or 0 for width in widths)
    if None in widths or taken > tensor.fake.dim():
        return tensor, key
    dim, between = 0, tensor.fake.dim() - taken
    left: list[Value] = []
    for part, width in zip(parts, widths, strict=True):
        if is_symbolic_int(part):
            tensor = call_graph(tx, "call_method", "select", (tensor, fresh(dim), part), {})
            continue
        left.append(part)
        dim += between if is_ellipsis(part) else width or 0
    return tensor, TupleValue(left) if left else WHOLE


def looked_up(tx: Machine, tensor: Any, key: Value, call_graph: Callable[..., Any]) -> Any:
    """What lies at integers that are all tensors of no dims, whatever they are; None for another key.

    x[i, j]  -->  aten.index(x, [i, j]), which reads no number on the host
    """
    parts: Sequence[Value] = key.items if isinstance(key, TupleValue) and key.cls is tuple else (key,)
    for part in parts:
        if not issubclass(part.python_type(), torch.Tensor):
            return None
        fake = part.graph_argument()[1]
        if fake.dim() or fake.dtype not in (torch.int64, torch.int32):
            return None
    return call_graph(tx, "call_function", torch.ops.aten.index.Tensor, (tensor, ListValue(list(parts))), {})


def dims_of(part: Value) -> int | None:
    """How many dims a part of a key stands for, `...` apart; None where that is not known."""
    if part.is_none() or is_ellipsis(part):
        return 0
    if issubclass(part.python_type(), torch.Tensor):
        fake = part.graph_argument()[1]
        return int(fake.dim()) if fake.dtype is torch.bool else 1
    plain = isinstance(part, ConstantValue) and type(part.value) is int
    return 1 if plain or isinstance(part, SliceValue | SymbolicValue) else None


def is_ellipsis(part: Value) -> bool:
    """Whether it is `...`."""
    return isinstance(part, ConstantValue) and part.value is Ellipsis
