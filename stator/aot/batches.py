"""Backward for a batch of tangents at once, as `torch.autograd.grad(..., is_grads_batched=True)` asks for it.

The engine then runs under a map, with tangents that stand for a batch each. Kernels read plain memory: the compiled
backward runs once for each element, and what it gives is put together. Neighbour: `runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
_functorch = torch._C._functorch


def is_batched(tensor: Tensor | None) -> bool:
    """Whether a tensor stands for a batch, in one of PyTorch's two implementations of maps."""
    return tensor is not None and (_functorch.is_batchedtensor(tensor) or _functorch.is_legacy_batchedtensor(tensor))


def mapped(function: Callable[[list[Any]], Sequence[Any]], tangents: Sequence[Tensor | None]) -> list[Any]:
    """What the function gives for each element of the innermost batch, as batches."""
    level, (put, take) = _innermost(tangents)
    plain = [take(tensor, level) if is_batched(tensor) else None for tensor in tangents]
    count = next(len(batch) for batch in plain if batch is not None)
    results = []
    for k in range(count):
        given = [t if batch is None else batch[k] for t, batch in zip(tangents, plain, strict=True)]
        results.append(mapped(function, given) if any(map(is_batched, given)) else function(given))
    columns = zip(*results, strict=True)
    return [None if column[0] is None else put(torch.stack(column), 0, level) for column in columns]


_Kind = tuple[Callable[[Tensor, int, int], Tensor], Callable[[Any, int], Tensor | None]]


def _innermost(tangents: Sequence[Tensor | None]) -> tuple[int, _Kind]:
    """The number of the innermost map, and how batches are put into it and taken out."""
    levels = [_functorch.maybe_get_level(t) for t in tangents if t is not None and _functorch.is_batchedtensor(t)]
    if levels:
        return max(levels), (_functorch._add_batch_dim, _unwrapped)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level, (torch._add_batch_dim, lambda tensor, level: torch._remove_batch_dim(tensor, level, 1, 0))


def _unwrapped(tensor: Tensor, level: int) -> Tensor | None:
    """The batch, its elements first; None for a tensor of another map."""
    if not _functorch.is_batchedtensor(tensor) or _functorch.maybe_get_level(tensor) != level:
        return None
    return _functorch.get_unwrapped(tensor).movedim(_functorch.maybe_get_bdim(tensor), 0)
