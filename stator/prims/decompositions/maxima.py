"""Maxima of windows of images and volumes with their positions, for windows that are short enough to be written out;
and their gradient.

The rule is eager's: in row-major order an element takes the lead where it is larger or NaN, and the first element of a
window leads at first. Positions count the elements of an image or a volume. A gradient is the sum over the windows that
cover an element, of those that it leads in. Neighbours: `pooling.py`, `unpooling.py`, `windows.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import along, iota, laid_out
from stator.prims.decompositions.pooling import Pool, each, even_windows
from stator.prims.table import decompose

#: Elements of a window that are compared one by one; ATen has kernels for longer ones.
FEW = 64


def _pools(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], gaps: Sequence[int], ceil: bool
) -> list[Pool]:
    rank = len(gaps)
    reaches = [(n - 1) * gap + 1 for n, gap in zip(each(kernel, rank), gaps, strict=True)]
    steps, borders = each(stride or kernel, rank), each(padding, rank)
    return [Pool(*one, ceil) for one in zip(x.shape[-rank:], reaches, steps, borders, strict=True)]


def _max_pool(
    rank: int,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> tuple[Tensor, Tensor]:
    gaps = each(dilation, rank)
    if math.prod(each(kernel, rank)) > FEW or x.numel() == 0:
        return NotImplemented
    pools = _pools(x, kernel, stride, padding, gaps, ceil)
    extents = [pool.extent for pool in pools]
    starts = [_start(pool, x.device) for pool in pools]
    bordered = x
    for d, pool in enumerate(pools, -rank):
        bordered = w.padded(bordered, d, pool.border, pool.excess, _lowest(x.dtype))
    inside = [p.add(start, p.mul(_missing(start, gap), gap)) for start, gap in zip(starts, gaps, strict=True)]
    place = p.expand(_position(inside, extents, x), [*x.shape[:-rank], *[pool.places for pool in pools]])
    offsets = product(*[range(0, pool.length, gap) for pool, gap in zip(pools, gaps, strict=True)])
    value = _elements(bordered, pools, next(offsets))
    for offset in offsets:
        candidate = _elements(bordered, pools, offset)
        leads = p.gt(candidate, value)
        if x.is_floating_point():
            leads = p.logical_or(leads, p.isnan(candidate))
        value = p.where(leads, candidate, value)
        here = [p.add(start, n) for start, n in zip(starts, offset, strict=True)]
        place = p.where(leads, _position(here, extents, x), place)
    return laid_out(value, x), laid_out(place, x)


def _start(pool: Pool, device: torch.device) -> Tensor:
    """Where the windows of a dim begin."""
    return p.sub(p.mul(iota(pool.places, device), pool.step), pool.border)


def _elements(bordered: Tensor, pools: Sequence[Pool], offset: Sequence[int]) -> Tensor:
    """The element at an offset of each window."""
    for d, (pool, n) in enumerate(zip(pools, offset, strict=True), -len(pools)):
        bordered = p.slice_(bordered, d, n, n + (pool.places - 1) * pool.step + 1, pool.step)
    return bordered


def _lowest(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _missing(start: Tensor, gap: int) -> Tensor:
    """How many elements of a window lie before the first one of the dim."""
    return p.div_mode(p.add(p.clamp(p.neg(start), 0), gap - 1), gap, rounding_mode="floor")


def _position(along_dims: Sequence[Tensor], extents: Sequence[int], x: Tensor) -> Tensor:
    """Positions along each dim as positions in the image or volume."""
    return _joined([along(vector, x, d) for d, vector in enumerate(along_dims, -len(extents))], extents)


def _joined(positions: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    first, *rest = positions
    for vector, extent in zip(rest, extents[1:], strict=True):
        first = p.add(p.mul(first, extent), vector)
    return first


def _max_pool_backward(
    rank: int,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    places: Tensor,
) -> Tensor:
    lengths, gaps = each(kernel, rank), each(dilation, rank)
    if grad.numel() == 0:
        return laid_out(p.full(list(x.shape), 0, dtype=x.dtype, device=x.device), x)
    pools = _pools(x, kernel, stride, padding, gaps, ceil)
    covering = [n if gap > 1 else -(-n // pool.step) for n, gap, pool in zip(lengths, gaps, pools, strict=True)]
    if math.prod(covering) > w.WRITTEN_OUT:
        return NotImplemented
    leaders = []
    for d, (pool, n, gap) in enumerate(zip(pools, lengths, gaps, strict=True)):
        behind = [1] * (rank - 1 - d)
        start = p.view(_start(pool, x.device), [pool.places, *behind, *[1] * rank])
        leaders.append(p.add(start, p.view(p.mul(iota(n, x.device), gap), [n, *behind])))
    led = p.eq(_within_windows(places, rank), _joined(leaders, [pool.extent for pool in pools]))
    value = p.where(led, _within_windows(grad, rank), 0)
    for d in reversed(range(rank)):
        value = w.overlap_add(value, grad.dim() - rank + d, *_placed(pools[d]), gaps[d])
    return laid_out(value, x)


def _within_windows(x: Tensor, rank: int) -> Tensor:
    """A result of each window, at each of its elements."""
    for _ in range(rank):
        x = p.unsqueeze(x, -1)
    return x


def _placed(pool: Pool) -> tuple[int, int, int]:
    return pool.extent, pool.border, pool.step


for _rank in (2, 3):
    decompose(f"max_pool{_rank}d_with_indices")(functools.partial(_max_pool, _rank))
    decompose(f"max_pool{_rank}d_with_indices_backward")(functools.partial(_max_pool_backward, _rank))


# -- adaptive ones whose windows are all of one length and do not overlap ---------------------------


@decompose("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    kernel = even_windows(x.shape[-len(size) :], size)
    return NotImplemented if kernel is None else _max_pool(len(size), x, kernel)


def _adaptive_max_pool_backward(rank: int, grad: Tensor, x: Tensor, places: Tensor) -> Tensor:
    kernel = even_windows(x.shape[-rank:], grad.shape[-rank:])
    if kernel is None:
        return NotImplemented
    return _max_pool_backward(rank, grad, x, kernel, kernel, [0], [1], False, places)


for _rank in (2, 3):
    decompose(f"adaptive_max_pool{_rank}d_backward")(functools.partial(_adaptive_max_pool_backward, _rank))
