"""Maxima of windows of images and volumes with their positions, for windows that are short enough to be written out.

The rule is eager's: in row-major order an element takes the lead where it is larger or NaN, and the first element of a
window leads at first. Positions count the elements of an image or a volume. Gradients are ATen's: one pass over the
results adds each to one element, which is less work than a sum over all windows that cover an element.
Neighbours: `pooling.py`, `unpooling.py`, `windows.py`.
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
from stator.prims.decompositions.layout import along, iota, laid_out, suggested
from stator.prims.decompositions.pooling import Pool, each
from stator.prims.table import decompose

#: Elements of a window that are compared one by one; ATen has kernels for longer ones, and good ones for channels last.
FEW, FEW_LAST = 32, 9


def _max_pool(
    rank: int,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> tuple[Tensor, Tensor]:
    lengths, gaps = each(kernel, rank), each(dilation, rank)
    few = FEW if suggested(x) is torch.contiguous_format else FEW_LAST
    if math.prod(lengths) > few or x.numel() == 0 or _counts_otherwise(x, rank):
        return NotImplemented
    reaches = [(n - 1) * gap + 1 for n, gap in zip(lengths, gaps, strict=True)]
    steps, borders, extents = each(stride or kernel, rank), each(padding, rank), list(x.shape[-rank:])
    pools = [Pool(*one, ceil) for one in zip(extents, reaches, steps, borders, strict=True)]
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


def _counts_otherwise(x: Tensor, rank: int) -> bool:
    """ATen's kernel for volumes in channels last leaves the window where all of it is minus infinity."""
    return rank == 3 and not x.is_contiguous()


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
    first, *rest = [along(vector, x, d) for d, vector in enumerate(along_dims, -len(extents))]
    for vector, extent in zip(rest, extents[1:], strict=True):
        first = p.add(p.mul(first, extent), vector)
    return first


for _rank in (2, 3):
    decompose(f"max_pool{_rank}d_with_indices")(functools.partial(_max_pool, _rank))
