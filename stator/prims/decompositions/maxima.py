"""Maxima of volumes with their positions, for windows that are short enough to be written out; and their gradient.

The rule is eager's: in row-major order an element takes the lead where it is larger or NaN, and the first element of a
window leads at first. Positions count the elements of a volume. Neighbours: `pooling.py`, `unpooling.py`, `windows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import along, iota, packed, reshaped
from stator.prims.decompositions.pooling import Pool, each
from stator.prims.table import decompose

#: Elements of a window that are compared one by one; ATen has kernels for longer ones.
FEW = 64
RANK = 3


@decompose("max_pool3d_with_indices")
def max_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> tuple[Tensor, Tensor]:
    lengths, gaps = each(kernel, RANK), each(dilation, RANK)
    if math.prod(lengths) > FEW or x.numel() == 0:
        return NotImplemented
    reaches = [(n - 1) * gap + 1 for n, gap in zip(lengths, gaps, strict=True)]
    steps, borders, extents = each(stride or kernel, RANK), each(padding, RANK), list(x.shape[-RANK:])
    pools = [Pool(*one, ceil) for one in zip(extents, reaches, steps, borders, strict=True)]
    starts = [p.sub(p.mul(iota(pool.places, x.device), pool.step), pool.border) for pool in pools]
    bordered = x
    for d, pool in enumerate(pools, -RANK):
        bordered = w.padded(bordered, d, pool.border, pool.excess, _lowest(x.dtype))
    size = [*x.shape[:-RANK], *[pool.places for pool in pools]]
    inside = [p.add(start, p.mul(_missing(start, gap), gap)) for start, gap in zip(starts, gaps, strict=True)]
    place = p.expand(_position(inside, extents, x), size)
    offsets = product(*[range(0, reach, gap) for reach, gap in zip(reaches, gaps, strict=True)])
    value = _elements(bordered, pools, next(offsets))
    for offset in offsets:
        candidate = _elements(bordered, pools, offset)
        leads = p.gt(candidate, value)
        if x.is_floating_point():
            leads = p.logical_or(leads, p.isnan(candidate))
        value = p.where(leads, candidate, value)
        here = [p.add(start, n) for start, n in zip(starts, offset, strict=True)]
        place = p.where(leads, _position(here, extents, x), place)
    return packed(value), packed(place)


def _elements(bordered: Tensor, pools: Sequence[Pool], offset: Sequence[int]) -> Tensor:
    """The element at an offset of each window."""
    for d, (pool, n) in enumerate(zip(pools, offset, strict=True), -RANK):
        bordered = p.slice_(bordered, d, n, n + (pool.places - 1) * pool.step + 1, pool.step)
    return bordered


def _lowest(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _missing(start: Tensor, gap: int) -> Tensor:
    """How many elements of a window lie before the first one of the dim."""
    return p.div_mode(p.add(p.clamp(p.neg(start), 0), gap - 1), gap, rounding_mode="floor")


def _position(along_dims: Sequence[Tensor], extents: Sequence[int], x: Tensor) -> Tensor:
    """Positions along each dim as positions in the volume."""
    first, *rest = [along(vector, x, d) for d, vector in enumerate(along_dims, -RANK)]
    for vector, extent in zip(rest, extents[1:], strict=True):
        first = p.add(p.mul(first, extent), vector)
    return first


@decompose("max_pool3d_with_indices_backward")
def max_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    places: Tensor,
) -> Tensor:
    lead = list(x.shape[:-RANK])
    zeros = p.full([*lead, math.prod(x.shape[-RANK:])], 0, dtype=x.dtype, device=x.device)
    if grad.numel() == 0:
        return p.view(zeros, list(x.shape))
    flat = [reshaped(t, [*lead, math.prod(grad.shape[-RANK:])]) for t in (places, grad)]
    return p.view(p.scatter_add(zeros, -1, *flat), list(x.shape))
