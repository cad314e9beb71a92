"""Samples whose tensors the graph makes itself, so that a compiler may prove what lies in them.

A compiler that knows the range of a value computes with narrower numbers, leaves out checks and starts reductions
elsewhere; of what a graph is given it knows nothing. `derive` puts before the function of a sample, for each of its
tensors, a way in which a graph makes the same values: a clamp, a comparison, a choice of constants, bits, a smaller
dtype, positions in an `arange`. Eager runs the same program, so nothing is lost where a way changes a gradient.
Neighbours: `database.py` has the samples, `judge.py` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stator.coverage.database import Sample

#: A way to make the values of a tensor again, or None where its values do not allow it.
Way = Callable[[Tensor], Tensor]
#: The most values that are told apart one by one.
FEW = 6
#: The widest range that positions are counted in.
COUNTED = 1000

_SMALLER = (torch.uint8, torch.int8, torch.int16, torch.int32)


def _same(t: Tensor) -> Tensor:
    return t


def ways(t: Tensor) -> list[Way]:
    """All that give the values of this tensor; of floats only those that are whole have more than one."""
    if t.numel() == 0 or t.dtype.is_complex or t.layout is not torch.strided or t.device.type == "meta":
        return [_same]
    if t.dtype is torch.bool:
        return [_compared, lambda t: t.to(torch.int8).clamp(0, 1) > 0, lambda t: (t.long() * 3 - 1).ge(0)]
    values = t.detach().double() if t.dtype.is_floating_point else t.detach()
    if t.dtype.is_floating_point and not bool((values.isfinite() & (values.trunc() == values)).all()):
        return [_same]
    low, high = int(values.min()), int(values.max())
    distinct = sorted(set(values.flatten().tolist())) if t.numel() <= COUNTED else []
    whole = _of_whole(low, high, [int(v) for v in distinct])
    if t.dtype.is_floating_point:
        fits = max(abs(low), abs(high)) < 2**24
        return [_as_float(way) for way in whole] if fits and not t.requires_grad else [_same]
    return whole


def _of_whole(low: int, high: int, distinct: Sequence[int]) -> list[Way]:
    found: list[Way] = [lambda t: t.clamp(low, high)]
    middle = (low + high + 1) // 2
    if low < middle:
        found.append(lambda t: torch.where(t >= middle, t.clamp(middle, high), t.clamp(low, middle - 1)))
    found += [_through(dtype) for dtype in _SMALLER if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max]
    if low >= 0:
        found.append(lambda t: t % (high + 1) if high + 1 <= torch.iinfo(t.dtype).max else t)
        mask = (1 << high.bit_length()) - 1
        found.append(lambda t: t & mask)
    if 0 < len(distinct) <= FEW:
        found.append(lambda t: _chosen(t, distinct))
        found.append(lambda t: _counted(t, distinct))
    if (low, high) == (0, 1):
        found.append(lambda t: (t > 0).to(t.dtype))
    if len(distinct) == 1:
        found.append(lambda t: torch.full_like(t, low))
    if high - low < COUNTED:
        found.append(lambda t: torch.arange(low, high + 1, device=t.device)[t.long() - low].to(t.dtype))
        found.append(lambda t: (torch.arange(high - low + 1, device=t.device)[t.long() - low] + low).to(t.dtype))
    return found


def _compared(t: Tensor) -> Tensor:
    return t.long() > 0


def _through(dtype: torch.dtype) -> Way:
    return lambda t: t.to(dtype).to(t.dtype)


def _as_float(way: Way) -> Way:
    return lambda t: way(t.long()).to(t.dtype)


def _chosen(t: Tensor, distinct: Sequence[int]) -> Tensor:
    made = torch.full_like(t, distinct[0])
    for value in distinct[1:]:
        made = torch.where(t == value, value, made)
    return made


def _counted(t: Tensor, distinct: Sequence[int]) -> Tensor:
    """By where each value stands among those that there are, as `bucketize` finds it."""
    edges = torch.tensor(distinct, dtype=t.dtype, device=t.device)
    return edges[torch.bucketize(t, edges)]


def derive(sample: Sample, turn: int) -> Sample:
    """The sample with each tensor made again: by another way in every turn."""
    function = sample.function
    chosen = [
        found[(turn + i) % len(found)] if isinstance(leaf, Tensor) and (found := ways(leaf)) else _same
        for i, leaf in enumerate(sample.leaves)
    ]

    def derived(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        made = [way(leaf) if isinstance(leaf, Tensor) else leaf for way, leaf in zip(chosen, leaves, strict=True)]
        args, kwargs = pytree.tree_unflatten(made, spec)
        return function(*args, **kwargs)

    return replace(sample, function=derived)


def derivable(sample: Sample) -> bool:
    """Whether any of its tensors is made in another way than by being given."""
    return any(isinstance(leaf, Tensor) and ways(leaf) != [_same] for leaf in sample.leaves)
