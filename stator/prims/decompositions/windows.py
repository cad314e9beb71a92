"""Sliding windows, and their transpose: what pooling, folding and resampling share.

`windows` gives the windows of a dim as a last dim, which costs nothing: it is a view. `overlap_add` puts windows back
at their places and adds where they overlap. It is written as a sum over what covers each element, with views and
borders only: a window longer than the step is cut in pieces of one step each, and every piece is the whole dim,
shifted. `gathered` is a sum over positions that are computed.
Neighbours: `pooling.py`, `folding.py`, `resampling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import along, reshaped

#: How many terms a sum may have that is written out; longer ones are reductions.
WRITTEN_OUT = 32


def total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors of the same size, from the left."""
    first, *rest = terms
    for term in rest:
        first = p.add(first, term)
    return first


def from_zero(x: Tensor) -> Tensor:
    """A sum as it is where it starts at zero, which -0.0 alone shows: it becomes 0.0."""
    return p.add(x, 0.0) if x.dtype.is_floating_point else x


def moved_back(x: Tensor, dim: int) -> Tensor:
    """The last dim as dim `dim`."""
    dim %= x.dim()
    if dim == x.dim() - 1:
        return x
    order = list(range(x.dim() - 1))
    order.insert(dim, x.dim() - 1)
    return p.permute(x, order)


def padded(x: Tensor, dim: int, before: int, after: int, value: float = 0) -> Tensor:
    """`x` with a border at both ends of a dim; negative borders cut off."""
    dim %= x.dim()
    if _is_zero(before) and _is_zero(after):
        return x
    return p.constant_pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after], value)


def _is_zero(n: int) -> bool:
    return type(n) is int and n == 0


def windows(x: Tensor, dim: int, length: int, step: int, dilation: int = 1) -> Tensor:
    """[…, place, …, position in the window]"""
    x = p.unfold(x, dim, (length - 1) * dilation + 1, step)
    return x if dilation == 1 else p.slice_(x, -1, 0, (length - 1) * dilation + 1, dilation)


def overlap_add(parts: Tensor, dim: int, extent: int, before: int, step: int, dilation: int = 1) -> Tensor:
    """The transpose of `windows` over a dim of `extent` with a border of `before`; `parts` ends in the window."""
    return total(overlapping(parts, dim, extent, before, step, dilation))


def overlapping(parts: Tensor, dim: int, extent: int, before: int, step: int, dilation: int = 1) -> list[Tensor]:
    """The pieces that `overlap_add` adds up, one or more: those at the beginning of the windows come first."""
    dim %= parts.dim() - 1
    parts = p.permute(parts, [*[d for d in range(parts.dim() - 1) if d != dim], dim, parts.dim() - 1])
    length, places = parts.shape[-1], parts.shape[-2]
    piece = step if dilation == 1 else 1
    terms: list[Tensor] = []
    for start in range(0, length, piece):
        left = start * dilation - before
        if _apart(left, places * step, extent):
            continue
        stop = min(start + piece, length)
        shifted = p.slice_(parts, -1, start, stop) if stop - start < length else parts
        if step > 1:
            shifted = padded(shifted, -1, 0, step - (stop - start))
        flat = _joined(shifted, step)
        terms.append(padded(flat, -1, left, extent - left - places * step))
    if not terms:
        terms = [p.full([*parts.shape[:-2], extent], 0, dtype=parts.dtype, device=parts.device)]
    return [moved_back(term, dim) for term in terms]


def _apart(left: int, length: int, extent: int) -> bool:
    """Whether nothing of a shifted piece lies within the dim, as far as is known."""
    known = all(type(n) is int for n in (left, length, extent))
    return known and (left >= extent or left + length <= 0)


def _joined(x: Tensor, step: int) -> Tensor:
    """The last two dims as one."""
    *lead, places, _ = x.shape
    if step == 1:
        return p.squeeze(x, [-1])
    return reshaped(x, [*lead, places * step])


def _is_all(extent: int, length: int) -> bool:
    return type(extent) is int and extent == length


def window_sums(x: Tensor, dims: Sequence[tuple[int, int, int]]) -> Tensor:
    """The sums of windows over (dim, length, step); a length that is no number is that of the dim."""
    if any(type(length) is not int for _, length, _ in dims):
        whole = [dim for dim, length, _ in dims if type(length) is not int or _is_all(x.shape[dim], length)]
        x, dims = p.sum_(x, whole, True), [one for one in dims if one[0] not in whole]
    if math.prod([length for _, length, _ in dims]) > WRITTEN_OUT:
        for dim, length, step in dims:
            x = windows(x, dim, length, step)
        return p.sum_(x, list(range(-len(dims), 0)))
    terms = [x]
    for dim, length, step in dims:
        last = x.shape[dim] - length + 1
        terms = [p.slice_(term, dim, k, k + last, step) for term in terms for k in range(length)]
    return total(terms)


#: Whether an element counts, and by what it is multiplied if so; None is 1.
Weight = tuple[Tensor, Tensor | None]


def gathered(x: Tensor, dim: int, positions: Tensor, weights: Sequence[Weight]) -> Tensor:
    """The sum over the rows of the tables of the elements of a dim at these positions, by each of some weights.

    What does not count is left out, not multiplied by zero, which infinities and NaN would show.
    """
    dim %= x.dim()
    if positions.shape[0] > WRITTEN_OUT:
        return p.sum_(_weighted(x, dim, positions, weights), [dim])
    return total(gathered_terms(x, dim, positions, weights))


def gathered_terms(x: Tensor, dim: int, positions: Tensor, weights: Sequence[Weight]) -> list[Tensor]:
    """What `gathered` adds up: a term for each row of the tables."""
    dim, rows = dim % x.dim(), range(positions.shape[0])
    return [_weighted(x, dim, p.select(positions, 0, k), [_row(one, k) for one in weights]) for k in rows]


def _row(weight: Weight, k: int) -> Weight:
    counts, factor = weight
    return p.select(counts, 0, k), None if factor is None else p.select(factor, 0, k)


def _weighted(x: Tensor, dim: int, positions: Tensor, weights: Sequence[Weight]) -> Tensor:
    value = p.index(x, [*[None] * dim, positions])

    def term(counts: Tensor, factor: Tensor | None) -> Tensor:
        product = value if factor is None else p.mul(value, along(factor, value, dim - x.dim()))
        return p.where(along(counts, value, dim - x.dim()), product, 0)

    return total([term(*weight) for weight in weights])
