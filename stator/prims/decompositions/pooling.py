"""Average pooling, plain and adaptive, and its gradients.

A pool is the sum of its windows, divided by how many elements each has: a product of one factor a dim. Its gradient is
the same division, then the sum over the windows that cover an element. The windows of an adaptive pool lie at computed
places, and the elements of its gradient are windows of the same kind the other way round. Sums of few terms are taken
in eager's order, row by row: great numbers that cancel show it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import along, iota, suggested
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose

#: Of how many windows that cover an element the gradients are added in eager's order: of more, dim by dim is faster.
TOGETHER = 16


class Pool:
    """One dim of a pool: window length, step, border and number of windows."""

    def __init__(self, extent: int, length: int, step: int, border: int, ceil: bool) -> None:
        self.extent, self.length, self.step, self.border = extent, length, step, border
        self.places = (extent + 2 * border - length + (step - 1 if ceil else 0)) // step + 1
        if ceil and (self.places - 1) * step >= extent + border:
            self.places -= 1
        #: How far the last window reaches over the end; negative where it does not come to it.
        self.excess = (self.places - 1) * step + length - extent - border

    def counts(self, include_border: bool, device: torch.device) -> Tensor | int:
        """How many elements each window is divided by."""
        if self.excess <= (self.border if include_border else 0) and (include_border or self.border == 0):
            return self.length
        start = p.sub(p.mul(iota(self.places, device), self.step), self.border)
        end = p.clamp(p.add(start, self.length), None, self.extent + (self.border if include_border else 0))
        if not include_border:
            start = p.clamp(start, 0)
        return p.sub(end, start)

    def summed(self) -> tuple[int, int, int]:
        """Border, excess and length of the windows as they are added up: a single one ends where the elements do."""
        if type(self.places) is not int or self.places != 1:
            return self.border, self.excess, self.length
        length = torch.sym_min(self.length - self.border, self.extent)
        return 0, length - self.extent, length


def _dims(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool, rank: int
) -> list[Pool]:
    kernel, stride, padding = (each(v, rank) for v in (kernel, stride or kernel, padding))
    return [Pool(*one, ceil) for one in zip(size[-rank:], kernel, stride, padding, strict=True)]


def each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _divided(x: Tensor, dims: Sequence[Pool], include_border: bool, divisor: int | None) -> Tensor:
    if divisor is not None:
        return _quotient(x, divisor)
    number, product = 1, None
    for d, pool in enumerate(dims, -len(dims)):
        count = pool.counts(include_border, x.device)
        if not isinstance(count, Tensor):
            number *= count
        else:
            count = along(count, x, d)
            product = count if product is None else p.mul(product, count)
    if product is None:
        return _quotient(x, number)
    return _quotient(x, product if number == 1 else p.mul(product, number))


def _quotient(x: Tensor, divisor: Tensor | int) -> Tensor:
    if x.dtype.is_floating_point:
        return p.div(x, cast(divisor, x.dtype) if isinstance(divisor, Tensor) else divisor)
    return p.div_mode(x, divisor, rounding_mode="trunc")


def _window_sums(x: Tensor, dims: Sequence[Pool]) -> Tensor:
    rank = len(dims)
    lengths = []
    for d, pool in enumerate(dims, -rank):
        border, excess, length = pool.summed()
        x = w.padded(x, d, border, excess)
        lengths.append((d % x.dim(), length, pool.step))
    return w.window_sums(x, lengths)


def _laid_out(value: Tensor, x: Tensor, rank: int) -> Tensor:
    """Pools of images keep channels last; pools of volumes never do."""
    return p.clone(value, memory_format=suggested(x) if rank == 2 else torch.contiguous_format)


def _averages(
    rank: int,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil: bool = False,
    include_border: bool = True,
    divisor: int | None = None,
) -> Tensor:
    dims = _dims(x.shape, kernel, stride, padding, ceil, rank)
    sums = w.from_zero(_window_sums(cast(x, compute_type(x.dtype)), dims))
    return _laid_out(cast(_divided(sums, dims, include_border, divisor), x.dtype), x, rank)


def _averages_backward(
    rank: int,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    include_border: bool,
    divisor: int | None,
) -> Tensor:
    dims = _dims(x.shape, kernel, stride, padding, ceil, rank)
    if any(pool.length > w.WRITTEN_OUT * pool.step for pool in dims):
        return NotImplemented
    value = _divided(cast(grad, compute_type(x.dtype)), dims, include_border, divisor)
    return _laid_out(cast(w.from_zero(_covering_sums(value, dims)), x.dtype), x, rank)


def _covering_sums(value: Tensor, dims: Sequence[Pool]) -> Tensor:
    """For each element the sum over the windows that cover it, in eager's order where these are few: row by row."""
    together = math.prod([-(-pool.length // pool.step) for pool in dims]) <= TOGETHER
    terms = [value]
    for d, pool in enumerate(dims, -len(dims)):
        found: list[Tensor] = []
        for term in terms:
            parts = p.expand(p.unsqueeze(term, -1), [*term.shape, pool.length])
            # The first of the windows that cover an element is the one in which it comes last.
            found += reversed(w.overlapping(parts, d, pool.extent, pool.border, pool.step))
        terms = found if together else [w.total(found)]
    return w.total(terms)


for _rank in (2, 3):
    decompose(f"avg_pool{_rank}d")(functools.partial(_averages, _rank))
    decompose(f"avg_pool{_rank}d_backward")(functools.partial(_averages_backward, _rank))


# -- adaptive ones ---------------------------------------------------------------------------------


def _bounds(extent: int, places: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(first element, element after the last) of each of so many windows that cover a dim."""
    number = p.mul(iota(places, device), extent)
    after = p.add(number, extent + places - 1)
    return _floor(number, places), _floor(after, places)


def _floor(number: Tensor, divisor: int) -> Tensor:
    return p.div_mode(number, divisor, rounding_mode="floor")


def _longest(extent: int, places: int) -> int:
    """The length of the longest of these windows."""
    return max(-(-(i + 1) * extent // places) - i * extent // places for i in range(places))


def _adaptive_sums(x: Tensor, places: Sequence[int]) -> Tensor:
    """The sums of the windows that cover the last dims, in eager's order where they are short: row by row."""
    dims = [(d, x.shape[d], n) for d, n in enumerate(places, -len(places)) if x.shape[d] != n]
    if math.prod([_longest(extent, n) for _, extent, n in dims]) > w.WRITTEN_OUT:
        for dim, extent, n in dims:
            positions, counts = _covered(extent, n, x.device)
            x = w.gathered(x, dim, positions, [(counts, None)])
        return x
    terms = [x]
    for dim, extent, n in reversed(dims):  # along the last dim elements lie apart: it comes first, while x is small
        positions, counts = _covered(extent, n, x.device)
        found = [w.gathered_terms(term, dim, positions, [(counts, None)]) for term in terms]
        terms = [term for row in zip(*found, strict=True) for term in row]
    return w.total(terms)


def _covered(extent: int, places: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The positions in each window, and which of them lie in it; the table of a dim's windows has a row for each."""
    first, end = _bounds(extent, places, device)
    at = p.add(first, p.unsqueeze(iota(_longest(extent, places), device), 1))
    return p.clamp(at, None, extent - 1), p.lt(at, end)


def _even(extents: Sequence[int], places: Sequence[int]) -> list[int] | None:
    """The length of each dim's windows, if they do not overlap; None too where sizes are not known."""
    if any(type(n) is not int for n in (*extents, *places)) or 0 in places:
        return None
    pairs = list(zip(extents, places, strict=True))
    return [n // m for n, m in pairs] if all(n % m == 0 for n, m in pairs) else None


def _shares(value: Tensor, x: Tensor, rank: int) -> Tensor:
    """The results of windows, or their gradients, divided by how long the windows of each dim are.

    Eager divides by one after the other, but where channels are last: what its vectors leave over aside.
    """
    extents, places = x.shape[-rank:], value.shape[-rank:]
    counts = []
    for d, extent in enumerate(extents):
        first, end = _bounds(extent, places[d], value.device)
        counts.append(along(p.to_copy(p.sub(end, first), dtype=value.dtype), value, d - rank))
    if rank == 2 and suggested(x) is torch.channels_last:
        counts = [p.mul(*counts)]
    for count in counts:
        value = p.div(value, count)
    return value


@decompose("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_averages(x: Tensor, size: Sequence[int]) -> Tensor:
    """One window that covers everything is a mean."""
    rank = len(size)
    if 0 in size:
        return NotImplemented
    if all(type(n) is int and n == 1 for n in size):
        return _laid_out(p.mean(x, list(range(-rank, 0)), True), x, rank)
    if any(type(n) is not int for n in (*size, *x.shape[-rank:])):
        return NotImplemented
    value = cast(x, compute_type(x.dtype))
    kernel = _even(x.shape[-rank:], size)
    if kernel is not None:
        return _averages(rank, x, kernel)
    value = _adaptive_sums(value, size)
    return _laid_out(cast(_shares(w.from_zero(value), x, rank), x.dtype), x, rank)


def _adaptive_averages_backward(rank: int, grad: Tensor, x: Tensor) -> Tensor:
    """The windows that cover the elements of a dim are windows that cover the results."""
    extents, size = x.shape[-rank:], grad.shape[-rank:]
    if 0 in size:
        return NotImplemented
    if all(type(n) is int and n == 1 for n in size):
        whole = math.prod(extents)
        return _laid_out(p.expand(p.div(grad, whole), list(x.shape)), x, rank)
    if any(type(n) is not int for n in (*size, *extents)):
        return NotImplemented
    kernel = _even(extents, size)
    if kernel is not None:
        return _averages_backward(rank, grad, x, kernel, kernel, [0], False, True, None)
    value = _shares(cast(grad, compute_type(x.dtype)), x, rank)
    value = _adaptive_sums(value, extents)
    return _laid_out(cast(w.from_zero(value), x.dtype), x, rank)


for _rank in (2, 3):
    decompose(f"_adaptive_avg_pool{_rank}d_backward")(functools.partial(_adaptive_averages_backward, _rank))
