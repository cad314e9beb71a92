"""Borders that repeat or mirror what they surround, dim by dim: joined parts, and in backward the parts added back.

A negative border cuts off, and so does its gradient: it is zero there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import laid_out, packed
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose

#: (x, dim, elements before, elements after) -> x with borders, or a gradient of that without them
Border = Callable[[Tensor, int, int, int], Tensor]


def _borders(padding: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(dim, elements before, elements after): the list begins with the last dim, which comes last here.

    Parts of the dim that is joined last are written one by one; of another, loops ask once a row which part it is in.
    """
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
    value = cast(grad, compute_type(grad.dtype))
    for dim, before, after in _borders(padding):
        value = w.padded(value, dim, -min(before, 0), -min(after, 0))
        positive = max(before, 0), max(after, 0)
        if any(positive):
            value = fold(value, dim, *positive)
    return _laid_out(cast(w.from_zero(value), grad.dtype), x)


def _part(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    return p.slice_(x, dim, start, end)


def _reflect(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    extent = x.shape[dim]
    left = p.flip(_part(x, dim, 1, 1 + before), [dim])
    right = p.flip(_part(x, dim, extent - 1 - after, extent - 1), [dim])
    return p.cat([part for part, n in ((left, before), (x, 1), (right, after)) if n], dim)


def _reflect_back(grad: Tensor, dim: int, before: int, after: int) -> Tensor:
    """What is mirrored lies in two stretches, one beside each end; where these do not meet the rest is copied."""
    extent = grad.shape[dim] - before - after
    middle = _part(grad, dim, before, before + extent)
    left = p.flip(_part(grad, dim, 0, before), [dim])
    right = p.flip(_part(grad, dim, before + extent, before + extent + after), [dim])
    if type(extent) is int and before + after + 2 <= extent:
        mirrored = ((1, 1 + before, left), (extent - 1 - after, extent - 1, right))
        return _with_added(middle, dim, [stretch for stretch in mirrored if stretch[0] < stretch[1]])
    terms = [middle]
    if before:
        terms.append(w.padded(left, dim, 1, extent - 1 - before))
    if after:
        terms.append(w.padded(right, dim, extent - 1 - after, 1))
    return w.total(terms)


def _with_added(x: Tensor, dim: int, stretches: Sequence[tuple[int, int, Tensor]]) -> Tensor:
    """`x` with (start, end, value) stretches of a dim added, which are in order."""
    parts, done = [], 0
    for start, end, value in stretches:
        parts += [_part(x, dim, done, start), p.add(_part(x, dim, start, end), value)]
        done = end
    return p.cat([*parts, _part(x, dim, done, x.shape[dim])], dim)


def _replicate(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    extent = x.shape[dim]
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
