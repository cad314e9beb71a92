"""Losses and their gradients, as elementwise values followed by eager's reduction.

`reduction` is ATen's number: 0 none, 1 mean, 2 sum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.dtypes import cast, compute_type, rounded, rounds_once, rounds_steps
from stator.prims.table import decompose

NONE, MEAN, SUM = 0, 1, 2


def _reduce(value: Tensor, reduction: int) -> Tensor:
    if reduction == NONE:
        return value
    dims = list(range(value.dim()))
    return p.mean(value, dims) if reduction == MEAN else p.sum_(value, dims)


def _scale(reduction: int, x: Tensor) -> float:
    """The factor that the reduction brings into the gradient."""
    return 1.0 / x.numel() if reduction == MEAN and x.numel() else 1.0


@decompose("mse_loss")
def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Eager's kernel rounds half types at every step: squares overflow where their mean would not."""
    d = p.sub(x, target)
    return _reduce(p.mul(d, d), reduction)


@decompose("soft_margin_loss_backward", alike=True)
def soft_margin_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Rounded at every step, as the loss is, and the factor too."""
    power = p.exp(p.mul(p.neg(target), x))
    scaled = p.mul(p.mul(target, power), rounded(-_scale(reduction, x), x))
    return p.mul(p.div(scaled, p.add(power, 1.0)), grad)


@decompose("mse_loss_backward")
def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Rounded at every step as well, the factor too."""
    d = p.sub(x, target)
    return p.mul(p.mul(d, rounded(2.0 * _scale(reduction, x), d)), grad)


@decompose("smooth_l1_loss")
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    return _reduce(_smooth_l1(x, target, beta), reduction)


@rounds_steps(torch.float16)
def _smooth_l1(x: Tensor, target: Tensor, beta: float) -> Tensor:
    d = p.absolute(p.sub(x, target))
    if beta == 0.0:
        return d
    limit = rounded(beta, d)
    near = p.div(p.mul(p.mul(d, 0.5), d), limit)
    return p.where(p.lt(d, limit), near, p.sub(d, rounded(0.5 * beta, d)))


@decompose("smooth_l1_loss_backward")
@rounds_once
def smooth_l1_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    d = p.sub(x, target)
    inner = p.where(p.ge(p.absolute(d), beta), p.sign(d), p.div(d, beta))  # the quotient of NaN is NaN, its sign is not
    return p.mul(p.mul(inner, _scale(reduction, x)), grad)


@decompose("huber_loss", alike=True)
def huber_loss(x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    return _reduce(_huber(x, target, delta), reduction)


@rounds_steps(torch.bfloat16)
def _huber(x: Tensor, target: Tensor, delta: float) -> Tensor:
    d, limit = p.absolute(p.sub(x, target)), rounded(delta, x)
    near = p.mul(p.mul(d, 0.5), d)
    return p.where(p.le(d, limit), near, p.mul(p.sub(d, rounded(0.5 * delta, d)), limit))


@decompose("huber_loss_backward", alike=True)
@rounds_steps(torch.bfloat16, torch.float16)
def huber_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    """As eager's vectors compute it; what is left behind them is rounded once."""
    d = p.sub(x, target)
    scale = rounded(_scale(reduction, x), d)
    return p.mul(p.mul(p.clamp(d, -delta, delta), scale), grad)


@decompose("soft_margin_loss", alike=True)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Eager takes one operator after the other: exponentials of half types are infinite where the loss would not be."""
    return _reduce(p.log1p(p.exp(p.mul(p.neg(x), target))), reduction)


@decompose("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    return _reduce(_weighed(_cross_entropy(x, target), weight), reduction)


def _weighed(value: Tensor, weight: Tensor | None) -> Tensor:
    """In place, whatever the dtype of the weight is."""
    return value if weight is None else cast(p.mul(value, weight), value.dtype)


@rounds_steps(torch.bfloat16, torch.float16)
def _cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    inside = p.mul(p.sub(target, 1.0), p.maximum(p.log1p(p.neg(x)), -100.0))
    return p.sub(inside, p.mul(target, p.maximum(p.log(x), -100.0)))


@decompose("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    value = _weighed(_cross_entropy_slope(grad, x, target), weight)
    return p.div(value, x.numel()) if reduction == MEAN else value


@rounds_steps(torch.bfloat16, torch.float16)
def _cross_entropy_slope(grad: Tensor, x: Tensor, target: Tensor) -> Tensor:
    variance = p.maximum(p.mul(p.sub(1.0, x), x), rounded(1e-12, x))
    return p.div(p.mul(grad, p.sub(x, target)), variance)


@decompose("binary_cross_entropy_with_logits", alike=True)
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """One operator after the other; the logarithm is one of them."""
    value = _log_sigmoid(x)
    if pos_weight is not None:
        value = p.mul(value, p.add(p.mul(p.sub(pos_weight, 1.0), target), 1.0))
    value = p.sub(p.mul(p.sub(1.0, target), x), value)
    return _reduce(_weighed(value, weight), reduction)


@rounds_once
def _log_sigmoid(x: Tensor) -> Tensor:
    return p.sub(p.minimum(x, 0.0), p.log1p(p.exp(p.neg(p.absolute(x)))))


def _class_dim(x: Tensor) -> int:
    return 0 if x.dim() == 1 else 1


@decompose("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int
) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        return NotImplemented
    dim, target = _class_dim(x), cast(target, torch.int64)  # no byte is a negative number, nor past 255
    valid = p.ne(target, ignore)
    safe = p.where(valid, target, 0)
    wide = cast(x, compute_type(x.dtype))
    picked = p.neg(p.squeeze(p.gather(wide, dim, p.unsqueeze(safe, dim)), [dim]))
    weights = None
    if weight is not None:
        weights = p.index(cast(weight, wide.dtype), [safe])
        picked = p.mul(picked, weights)
    value = p.where(valid, picked, 0.0)
    if reduction == NONE:
        return cast(value, x.dtype), p.full([], 0.0, dtype=x.dtype, device=x.device)
    counted = cast(valid, wide.dtype) if weights is None else p.where(valid, weights, 0.0)
    dims = list(range(target.dim()))
    total_weight = p.sum_(counted, dims) if dims else counted
    total = p.sum_(value, dims) if dims else value
    result = p.div(total, total_weight) if reduction == MEAN else total
    return cast(result, x.dtype), cast(total_weight, x.dtype)


@decompose("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore: int,
    total_weight: Tensor,
) -> Tensor:
    """Minus the scaled gradient at the target class, zero elsewhere: pointwise, no scatter needed."""
    if x.numel() == 0:
        return NotImplemented
    dim, target = _class_dim(x), cast(target, torch.int64)
    classes = x.shape[dim]
    valid = p.ne(target, ignore)
    wide = compute_type(x.dtype)
    g = cast(grad, wide)
    if reduction == MEAN:
        g = p.div(g, cast(total_weight, wide))
    if weight is not None:
        g = p.mul(g, p.index(cast(weight, wide), [p.where(valid, target, 0)]))
    row = p.unsqueeze(p.where(valid, p.neg(g), 0.0), dim)
    number = p.arange(0, classes, 1, dtype=target.dtype, device=x.device)
    number = p.view(number, [classes if d == dim else 1 for d in range(x.dim())])
    return cast(p.where(p.eq(number, p.unsqueeze(target, dim)), row, 0.0), x.dtype)


@decompose("xlogy.Tensor")
@rounds_steps(torch.bfloat16, torch.float16)
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    value = p.where(p.eq(x, 0), 0.0, p.mul(x, p.log(y)))
    return p.where(p.isnan(y), math.nan, value)
