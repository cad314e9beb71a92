"""Indexing: lookups reduce to `index.Tensor`, `index_select` and `gather`, writes to `index_put`, `scatter.src` and
`scatter_add`. Only `index.Tensor` and `index_put` count negative positions from the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.table import cast, decompose


@decompose("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding: int = -1, scale_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    if indices.dim() == 1:
        return p.index_select(weight, 0, indices)
    return p.view(p.index_select(weight, 0, _flat(indices)), [*indices.shape, weight.shape[1]])


def _flat(x: Tensor) -> Tensor:
    return p.view(x if x.is_contiguous() else p.clone(x, memory_format=torch.contiguous_format), [-1])


@decompose("index_select")
def index_select(x: Tensor, dim: int, positions: Tensor) -> Tensor:
    if x.dim() == 0:
        return p.clone(x)
    return p.index_select(x, dim, p.unsqueeze(positions, 0)) if positions.dim() == 0 else NotImplemented


@decompose("_unsafe_index.Tensor")
def unsafe_index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return p.index(x, indices)


@decompose("_unsafe_index_put")
def unsafe_index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    return p.index_put(x, indices, values, accumulate)


@decompose("index_put")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A single mask that covers all of `x`, with one value, is a `where`."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype is not torch.bool or accumulate or values.numel() != 1:
        return NotImplemented
    one = p.view(cast(values, x.dtype), [])
    for _ in range(x.dim() - mask.dim()):
        mask = p.unsqueeze(mask, -1)
    return p.where(mask, one, x)


@decompose("scatter.value")
def scatter_value(x: Tensor, dim: int, positions: Tensor, value: float) -> Tensor:
    return p.scatter(x, dim, positions, p.full(list(positions.shape), value, dtype=x.dtype, device=x.device))


@decompose("index_fill.int_Scalar")
def index_fill(x: Tensor, dim: int, positions: Tensor, value: float) -> Tensor:
    if x.dim() == 0 or positions.dim() == 0:
        return NotImplemented
    filled = p.full([], value, dtype=x.dtype, device=x.device)
    return p.index_put(x, [*[None] * (dim % x.dim()), positions], filled, False)


@decompose("take")
def take(x: Tensor, positions: Tensor) -> Tensor:
    return p.index(_flat(x), [positions])


@decompose("value_selecting_reduction_backward")
def value_selecting_reduction_backward(
    grad: Tensor, dim: int, positions: Tensor, size: Sequence[int], keepdim: bool
) -> Tensor:
    """Pointwise: the gradient where the position is the chosen one, zero elsewhere."""
    if not size:
        return p.clone(grad)
    dim = dim % len(size)
    if not keepdim:
        grad, positions = p.unsqueeze(grad, dim), p.unsqueeze(positions, dim)
    number = p.arange(0, size[dim], 1, dtype=torch.int64, device=grad.device)
    number = p.view(number, [size[dim] if d == dim else 1 for d in range(len(size))])
    return p.where(p.eq(number, positions), grad, 0.0)
