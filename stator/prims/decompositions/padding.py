"""Borders that repeat or mirror what they surround, dim by dim, and in backward the parts added back.

The last dim is joined of parts, each of which loops write by itself: what lies contiguous is moved as such. Along the
others a row has one position that it is read at, which is computed once for the row; what is added to it in backward is
asked for once a row too. A negative border cuts off, and so does its gradient: it is zero there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import laid_out, packed
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose

#: (x, dim, elements before, elements after) -> x with borders, or a gradient of that without them
Border = Callable[[Tensor, int, int, int], Tensor]


def _borders(padding: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(dim, elements before, elements after): the list begins with the last dim, which comes last here."""
    for k in reversed(range(len(padding) // 2)):
        yield -1 - k, padding[2 * k], padding[2 * k + 1]


def _pad(border: Border, x: Tensor, padding: Sequence[int]) -> Tensor:
    out = x
    for dim, before, after in _borders(padding):
        positive = max(before, 0), max(after, 0)
        if any(positive):
            out = border(out, dim, *positive)
        out = w.padded(out, dim, min(before, 0), min(after, 0))
    return _laid_out(out, x)


def _laid_out(value: Tensor, x: Tensor) -> Tensor:
    """Eager's CPU kernels keep the memory format of `x`, its CUDA kernels give contiguous results."""
    if x.device.type == "cpu":
        return laid_out(value, x)
    return packed(value)


def _pad_backward(fold: Border, grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    value = w.from_zero(cast(grad, compute_type(grad.dtype)))  # sums of such numbers are none of -0.0 either
    for dim, before, after in _borders(padding):
        value = w.padded(value, dim, -min(before, 0), -min(after, 0))
        positive = max(before, 0), max(after, 0)
        if any(positive):
            value = fold(value, dim, *positive)
    return _laid_out(cast(value, grad.dtype), x)


def _part(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    return p.slice_(x, dim, start, end)


def _is_last(dim: int) -> bool:
    return dim == -1


def _positions(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Where each element of the dim with borders is in `x`, less than 0 and beyond its end in the borders."""
    end = x.shape[dim] + after
    return p.arange(-before, end, 1, dtype=torch.int64, device=x.device)


def _reflect(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    extent = x.shape[dim]
    if not _is_last(dim):
        last = extent - 1
        inside = p.absolute(_positions(x, dim, before, after))
        mirrored = p.sub(last, p.absolute(p.sub(last, inside)))
        return p.index_select(x, dim, p.clamp(mirrored, 0, last))
    left = p.flip(_part(x, dim, 1, 1 + before), [dim])
    right = p.flip(_part(x, dim, extent - 1 - after, extent - 1), [dim])
    return p.cat([part for part, n in ((left, before), (x, 1), (right, after)) if n], dim)


def _reflect_back(grad: Tensor, dim: int, before: int, after: int) -> Tensor:
    """What is mirrored lies in two stretches, one beside each end; where these do not meet the rest is copied."""
    extent = grad.shape[dim] - before - after
    middle = _part(grad, dim, before, before + extent)
    left = p.flip(_part(grad, dim, 0, before), [dim])
    right = p.flip(_part(grad, dim, before + extent, before + extent + after), [dim])
    if _is_last(dim) and type(extent) is int and before + after + 2 <= extent:
        start, end = 1 + before if before else 0, extent - 1 - after if after else extent
        parts = [_part(middle, dim, start, end)]
        if before:
            parts.insert(0, p.add(_part(middle, dim, 0, start), w.padded(left, dim, 1, 0)))
        if after:
            parts.append(p.add(_part(middle, dim, end, extent), w.padded(right, dim, 0, 1)))
        return p.cat(parts, dim)
    terms = [middle]
    if before:
        terms.append(w.padded(left, dim, 1, extent - 1 - before))
    if after:
        terms.append(w.padded(right, dim, extent - 1 - after, 1))
    return w.total(terms)


def _replicate(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    extent = x.shape[dim]
    if not _is_last(dim):
        return p.index_select(x, dim, p.clamp(_positions(x, dim, before, after), 0, extent - 1))
    size = list(x.shape)

    def repeated(start: int, count: int) -> Tensor:
        size[dim] = count
        return p.expand(_part(x, dim, start, start + 1), list(size))

    left, right = repeated(0, before), repeated(extent - 1, after)
    return p.cat([part for part, n in ((left, before), (x, 1), (right, after)) if n], dim)


def _replicate_back(grad: Tensor, dim: int, before: int, after: int) -> Tensor:
    extent = grad.shape[dim] - before - after
    if extent == 1:
        return p.sum_(grad, [dim], True)
    left = p.sum_(_part(grad, dim, 0, before + 1), [dim], True)
    right = p.sum_(_part(grad, dim, before + extent - 1, before + extent + after), [dim], True)
    middle = _part(grad, dim, before + 1, before + extent - 1)
    return p.cat([left, middle, right] if extent > 2 else [left, right], dim)


for _rank in (1, 2, 3):
    decompose(f"reflection_pad{_rank}d", also_complex=True)(functools.partial(_pad, _reflect))
    decompose(f"reflection_pad{_rank}d_backward", also_complex=True)(functools.partial(_pad_backward, _reflect_back))
    decompose(f"replication_pad{_rank}d", also_complex=True)(functools.partial(_pad, _replicate))
    decompose(f"replication_pad{_rank}d_backward", also_complex=True)(functools.partial(_pad_backward, _replicate_back))
