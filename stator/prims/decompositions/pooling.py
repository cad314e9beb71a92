"""Pooling and resampling that reduce to lookups and reductions; the rest stays extern.

`upsample_nearest*` is one lookup per element; bilinear is four lookups and their blend.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.table import cast, compute_type, decompose


def _whole(x: Tensor, size: Sequence[int]) -> bool:
    return all(n == 1 for n in size) and x.is_contiguous()


@decompose("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(x: Tensor, size: Sequence[int]) -> Tensor:
    """A window that covers everything is a mean."""
    if not _whole(x, size):
        return NotImplemented
    return p.mean(x, list(range(-len(size), 0)), True)


@decompose("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(grad: Tensor, x: Tensor) -> Tensor:
    if not _whole(x, grad.shape[-2:]):
        return NotImplemented
    spread = p.expand(p.div(grad, x.shape[-1] * x.shape[-2]), list(x.shape))
    return p.clone(spread, memory_format=torch.contiguous_format)


def _source(extent: int, result: int, scale: float | None, device: torch.device) -> Tensor:
    """The input position that each output position of one dim is copied from."""
    ratio = 1.0 / scale if scale is not None and scale > 0 else extent / result
    number = p.to_copy(p.arange(0, result, 1, dtype=torch.int64, device=device), dtype=torch.float32)
    return p.clamp(p.to_copy(p.floor(p.mul(number, ratio)), dtype=torch.int64), 0, extent - 1)


@decompose("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(x: Tensor, size: Sequence[int], *scales: float | None) -> Tensor:
    if not x.is_contiguous() or x.numel() == 0:
        return NotImplemented
    rank = len(size)
    factors = scales or (None,) * rank
    indices: list[Tensor | None] = [None, None]
    for d in range(rank):
        position = _source(x.shape[2 + d], size[d], factors[d], x.device)
        indices.append(p.view(position, [size[d] if k == d else 1 for k in range(rank)]))
    return p.index(x, indices)


def _weights(
    extent: int, result: int, align: bool, scale: float | None, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """(lower position, upper position, weight of the upper) of each output position of one dim."""
    number = p.to_copy(p.arange(0, result, 1, dtype=torch.int64, device=device), dtype=dtype)
    if align:
        place = p.mul(number, (extent - 1) / (result - 1) if result > 1 else 0.0)
    else:
        ratio = 1.0 / scale if scale is not None and scale > 0 else extent / result
        place = p.clamp(p.sub(p.mul(p.add(number, 0.5), ratio), 0.5), 0.0)
    low = p.to_copy(p.floor(place), dtype=torch.int64)
    low = p.clamp(low, 0, extent - 1)
    high = p.clamp(p.add(low, 1), 0, extent - 1)
    return low, high, p.clamp(p.sub(place, p.to_copy(low, dtype=dtype)), 0.0, 1.0)


@decompose("upsample_bilinear2d")
def upsample_bilinear2d(
    x: Tensor, size: Sequence[int], align: bool, scale_h: float | None = None, scale_w: float | None = None
) -> Tensor:
    if not x.is_contiguous() or x.numel() == 0 or not x.is_floating_point():
        return NotImplemented
    wide = compute_type(x.dtype)
    top, bottom, down = _weights(x.shape[2], size[0], align, scale_h, wide, x.device)
    left, right, across = _weights(x.shape[3], size[1], align, scale_w, wide, x.device)
    top, bottom, down = (p.unsqueeze(v, 1) for v in (top, bottom, down))

    def corner(row: Tensor, column: Tensor) -> Tensor:
        return cast(p.index(x, [None, None, row, column]), wide)

    def blend(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
        return p.add(p.mul(a, p.sub(1.0, weight)), p.mul(b, weight))

    upper = blend(corner(top, left), corner(top, right), across)
    lower = blend(corner(bottom, left), corner(bottom, right), across)
    return cast(blend(upper, lower, down), x.dtype)
