"""Distances between all rows of two matrices, as a difference and a norm that fuse; and their gradients.

`order` is that of the norm. Where eager computes Euclidean distances by a product of matrices, so does the graph.
Those between the rows of one matrix are ATen's: as loops, pairs are reads at computed positions, and much slower.
Neighbour: `reduction.py` (norms).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stator.base.device import HOST
from stator.prims import names as p
from stator.prims.decompositions.reduction import norm_of_terms
from stator.prims.dtypes import cast, held
from stator.prims.table import decompose

#: Matrices with more rows are multiplied for Euclidean distances, unless the caller says when.
MANY = 25


@decompose("_cdist_forward")
def distances(a: Tensor, b: Tensor, order: float, mode: int | None) -> Tensor:
    many = a.shape[-2] > MANY or b.shape[-2] > MANY
    if a.numel() == 0 or b.numel() == 0:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return p.full([*batch, a.shape[-2], b.shape[-2]], 0, dtype=a.dtype, device=a.device)
    if order == 2 and (mode == 1 or (not mode and many)):
        return NotImplemented
    difference = p.sub(p.unsqueeze(a, -2), p.unsqueeze(b, -3))
    if order == 0:  # how many differ; a NaN is itself on the host, elsewhere it does
        kept = p.eq(difference, 0.0)
        kept = p.logical_or(kept, p.isnan(difference)) if a.device.type == HOST else kept
        return p.sum_(p.where(kept, difference, 1.0), [-1], False)
    if order == math.inf:  # eager's loop compares, and passes over NaN
        difference = p.where(p.isnan(difference), 0.0, difference)
    if order in (1, 2, math.inf) or a.device.type != HOST:
        return norm_of_terms(difference, order, [-1])
    order = held(order, a.dtype)
    total = p.sum_(p.power_scalar(p.absolute(difference), order), [-1], False)
    return cast(p.power_scalar(cast(total, torch.float64), 1.0 / order), a.dtype)  # the root is one of doubles


@decompose("_euclidean_dist")
def euclidean_distances(a: Tensor, b: Tensor) -> Tensor:
    """The squares by one product: of (-2 a, its square, 1) and (b, 1, its square)."""
    if a.dim() != b.dim() or a.dim() not in (2, 3):
        return NotImplemented
    squares = [p.sum_(p.mul(x, x), [-1], True) for x in (a, b)]
    left = p.cat([p.mul(a, -2), squares[0], p.full_like(squares[0], 1)], -1)
    right = p.cat([b, p.full_like(squares[1], 1), squares[1]], -1)
    turned = p.permute(right, [*range(a.dim() - 2), -1, -2])
    product = p.mm(left, turned) if a.dim() == 2 else p.bmm(left, turned)
    return p.sqrt(p.clamp(product, 0))


@decompose("_cdist_backward")
def distances_backward(grad: Tensor, a: Tensor, b: Tensor, order: float, distance: Tensor) -> Tensor:
    """The gradient at `a`: what each of its rows gets from all rows of `b`."""
    if a.numel() == 0 or b.numel() == 0 or order == 0:
        return p.full([*grad.shape[:-1], a.shape[-1]], 0, dtype=a.dtype, device=a.device)
    difference = p.sub(p.unsqueeze(a, -2), p.unsqueeze(b, -3))
    return p.sum_(_sloped(p.unsqueeze(grad, -1), difference, p.unsqueeze(distance, -1), order), [-2], False)


@decompose("_pdist_backward")
def distances_within_backward(grad: Tensor, x: Tensor, order: float, distance: Tensor) -> Tensor:
    """Of no rows, for which ATen's kernel reads past the end of its memory."""
    return p.full(list(x.shape), 0, dtype=x.dtype, device=x.device) if x.shape[0] == 0 else NotImplemented


def _sloped(grad: Tensor, difference: Tensor, distance: Tensor, order: float) -> Tensor:
    """The gradient times the derivative of the norm by each difference.

    A NaN has itself as sign in eager's vectors of the host; other devices compare it with zero, so that it has none.
    Where the distance is zero there is none, whatever the gradient: an infinity times zero would be NaN.
    """
    order = held(order, grad.dtype)
    size, sign, on_host = p.absolute(difference), p.sign(difference), grad.device.type == HOST
    if on_host:
        sign = p.where(p.isnan(difference), difference, sign)
    match order:
        case 1:
            return p.mul(grad, sign)
        case 2:
            sloped = p.div(p.mul(grad, difference), distance)
        case math.inf:
            if not on_host:
                return p.mul(grad, p.where(p.eq(size, distance), sign, 0.0))
            gap = p.sub(size, distance)
            return p.mul(grad, p.where(p.isnan(gap), gap, p.where(p.eq(gap, 0.0), sign, 0.0)))
        case _:
            base, exponent = (difference, order - 2) if order > 2 else (sign, order - 1)
            scaled = p.mul(p.mul(base, p.power_scalar(size, exponent)), grad)
            sloped = p.div(scaled, p.power_scalar(distance, order - 1))
            if order < 1:
                return p.where(p.logical_or(p.eq(distance, 0.0), p.eq(difference, 0.0)), 0.0, sloped)
    return p.where(p.eq(distance, 0.0), 0.0, sloped)
