"""Activations and their gradients.

Half types are computed in float32 and rounded once, as eager's kernels do (`rounds_once`); the few
that only choose between values need no widening.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stator.base.device import HOST
from stator.fake.layout import promote
from stator.prims import names as p
from stator.prims.dtypes import HALF_TYPES, cast, floating, rounded, rounds_once, rounds_steps
from stator.prims.table import decompose

SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654
INV_SQRT_2_PI = 0.3989422804014327
GELU_CUBE = 0.044715


@decompose("gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    result: Tensor = (_gelu_of_shares if _by_shares(x, approximate) else _gelu)(x, approximate)
    return result


def _by_shares(x: Tensor, approximate: str) -> bool:
    """Whether (1 + tanh(u)) / 2 is computed as the sigmoid of 2u: a third of the instructions, and nothing cancels.

    Of float32 it would be wrong by twice as much as eager's.
    """
    return approximate == "tanh" and x.device.type != HOST and x.dtype in HALF_TYPES


@rounds_once
def _gelu(x: Tensor, approximate: str) -> Tensor:
    if approximate == "tanh":
        inner = p.mul(p.add(x, p.mul(p.mul(p.mul(x, x), x), GELU_CUBE)), SQRT_2_OVER_PI)
        return p.mul(p.mul(x, 0.5), p.add(p.tanh(inner), 1.0))
    return p.mul(p.mul(x, 0.5), p.add(p.erf(p.mul(x, SQRT_HALF)), 1.0))


@rounds_once
def _gelu_of_shares(x: Tensor, approximate: str) -> Tensor:
    return p.mul(x, _gelu_share(x))


def _gelu_share(x: Tensor) -> Tensor:
    cube = p.mul(p.mul(x, x), x)
    return p.sigmoid(p.mul(p.add(x, cube, alpha=GELU_CUBE), 2.0 * SQRT_2_OVER_PI))


@decompose("gelu_backward")
def gelu_backward(grad: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    by_shares = _by_shares(x, approximate)
    result: Tensor = (_gelu_backward_of_shares if by_shares else _gelu_backward)(grad, x, approximate)
    return result


@rounds_once
def _gelu_backward_of_shares(grad: Tensor, x: Tensor, approximate: str) -> Tensor:
    share = _gelu_share(x)
    slope = p.add(p.mul(p.mul(x, x), 3.0 * GELU_CUBE), 1.0)
    right = p.mul(p.mul(p.mul(share, p.sub(1.0, share)), x), slope)
    return p.mul(grad, p.add(share, right, alpha=2.0 * SQRT_2_OVER_PI))


@rounds_once
def _gelu_backward(grad: Tensor, x: Tensor, approximate: str) -> Tensor:
    if approximate == "tanh":
        square = p.mul(x, x)
        inner = p.mul(p.add(x, p.mul(p.mul(square, x), GELU_CUBE)), SQRT_2_OVER_PI)
        t = p.tanh(inner)
        left = p.mul(p.add(t, 1.0), 0.5)
        slope = p.mul(p.add(p.mul(square, 3.0 * GELU_CUBE), 1.0), SQRT_2_OVER_PI)
        right = p.mul(p.mul(p.mul(x, 0.5), p.sub(1.0, p.mul(t, t))), slope)
        return p.mul(grad, p.add(left, right))
    cdf = p.mul(p.add(p.erf(p.mul(x, SQRT_HALF)), 1.0), 0.5)
    pdf = p.mul(p.exp(p.mul(p.mul(x, x), -0.5)), INV_SQRT_2_PI)
    return p.mul(grad, p.add(cdf, p.mul(x, pdf)))


@decompose("silu")
@rounds_once
def silu(x: Tensor) -> Tensor:
    return p.div(x, p.add(p.exp(p.neg(x)), 1.0))


@decompose("silu_backward")
@rounds_once
def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    s = p.sigmoid(x)
    return p.mul(p.mul(grad, s), p.add(p.mul(x, p.sub(1.0, s)), 1.0))


@decompose("relu")
def relu(x: Tensor) -> Tensor:
    return p.maximum(x, 0)


@decompose("relu6")
def relu6(x: Tensor) -> Tensor:
    return p.clamp(x, 0, 6)


@decompose("threshold")
@rounds_once  # nor is the limit rounded to the half type that it meets
def threshold(x: Tensor, limit: float, value: float) -> Tensor:
    if not x.is_floating_point():  # its kernel converts both to the dtype of the integers
        limit, value = int(limit), int(value)
    return p.where(p.le(x, limit), value, x)


@decompose("threshold_backward")
@rounds_once
def threshold_backward(grad: Tensor, x: Tensor, limit: float) -> Tensor:
    return p.where(p.le(x, limit), 0.0, grad)


@decompose("leaky_relu")
@rounds_once
def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    return p.where(p.gt(x, 0), x, p.mul(x, slope))


@decompose("leaky_relu_backward")
@rounds_once
def leaky_relu_backward(grad: Tensor, x: Tensor, slope: float, is_result: bool) -> Tensor:
    return p.where(p.gt(x, 0), grad, p.mul(grad, slope))


@decompose("elu")
@rounds_once
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    negative = p.mul(p.expm1(p.mul(x, input_scale)), alpha * scale)
    return p.where(p.gt(x, 0), p.mul(x, scale), negative)


@decompose("elu_backward")
@rounds_once
def elu_backward(grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor) -> Tensor:
    if is_result:
        slope = p.mul(p.add(x, alpha * scale), input_scale)
    else:
        slope = p.mul(p.exp(p.mul(x, input_scale)), alpha * scale * input_scale)
    above, below = p.mul(grad, scale), p.mul(grad, slope)
    return p.where(p.gt(x, 0), above, below) if x.device.type == HOST else p.where(p.le(x, 0), below, above)


@decompose("hardtanh")
def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    if not x.is_floating_point():
        low, high = int(low), int(high)
    return p.clamp(x, low, high)


@decompose("hardtanh_backward")
def hardtanh_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """Of a NaN it is 0 in eager's vectors of the host, and all of it on other devices; so is `elu`'s."""
    if x.device.type == HOST:
        return p.where(p.logical_and(p.gt(x, low), p.lt(x, high)), grad, 0.0)
    return p.where(p.logical_or(p.le(x, low), p.ge(x, high)), 0.0, grad)


#: Eager's constant, whatever the dtype: a sixth in float32.
SIXTH = 0.1666666716337204


def _sixth(x: Tensor) -> Tensor:
    """x / 6, which eager multiplies by its constant on CUDA."""
    return p.div(x, 6.0) if x.device.type == "cpu" else p.mul(x, SIXTH)


@decompose("hardsigmoid")
@rounds_once
def hardsigmoid(x: Tensor) -> Tensor:
    return _sixth(p.clamp(p.add(x, 3.0), 0.0, 6.0))


@decompose("hardsigmoid_backward")
@rounds_once
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    inside = p.logical_and(p.gt(x, -3.0), p.lt(x, 3.0))
    return p.where(inside, p.mul(grad, SIXTH), 0.0)


@decompose("hardswish")
@rounds_once
def hardswish(x: Tensor) -> Tensor:
    return _sixth(p.mul(x, p.clamp(p.add(x, 3.0), 0.0, 6.0)))


@decompose("hardswish_backward")
@rounds_once
def hardswish_backward(grad: Tensor, x: Tensor) -> Tensor:
    middle = p.mul(grad, p.add(p.div(x, 3.0), 0.5))
    return p.where(p.le(x, -3.0), 0.0, p.where(p.lt(x, 3.0), middle, grad))


@decompose("softplus")
@rounds_once
def softplus(x: Tensor, beta: float = 1.0, limit: float = 20.0) -> Tensor:
    scaled = p.mul(x, beta)
    return p.where(p.gt(scaled, limit), x, p.div(p.log1p(p.exp(scaled)), beta))


@decompose("softplus_backward")
@rounds_once
def softplus_backward(grad: Tensor, x: Tensor, beta: float, limit: float) -> Tensor:
    scaled = p.mul(x, beta)
    z = p.exp(scaled)
    return p.where(p.gt(scaled, limit), grad, p.div(p.mul(grad, z), p.add(z, 1.0)))


def _log1p_exp(x: Tensor) -> Tensor:
    """log(1 + exp(x)) that neither overflows nor cancels."""
    return p.add(p.maximum(x, 0.0), p.log1p(p.exp(p.neg(p.absolute(x)))))


@decompose("mish")
@rounds_once
def mish(x: Tensor) -> Tensor:
    return p.mul(x, p.tanh(_log1p_exp(x)))


@decompose("mish_backward")
def mish_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Computed in the dtype that both promote to, given in that of `x`."""
    dtype = promote((grad, x))
    return cast(_mish_gradient(cast(grad, dtype), cast(x, dtype)), x.dtype)


@rounds_once
def _mish_gradient(grad: Tensor, x: Tensor) -> Tensor:
    t = p.tanh(_log1p_exp(x))
    return p.mul(grad, p.add(t, p.mul(p.mul(x, p.sigmoid(x)), p.sub(1.0, p.mul(t, t)))))


@decompose("log_sigmoid_forward")
@rounds_once
def log_sigmoid_forward(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    z = p.exp(p.neg(p.absolute(x)))
    value = p.sub(p.minimum(x, 0.0), p.log1p(z))
    return value, (z if x.device.type == "cpu" else p.full([0], 0.0, dtype=x.dtype, device=x.device))


@decompose("log_sigmoid_backward")
@rounds_once
def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """The buffer is of what forward read, also where `x` has been written to since, unseen by autograd."""
    small = buffer if x.device.type == "cpu" else p.exp(p.neg(p.absolute(x)))
    share = p.div(small, p.add(small, 1.0))  # which is not 0 yet where the sigmoid's exp overflows
    return p.mul(grad, p.where(p.lt(x, 0.0), p.sub(1.0, share), share))


@decompose("sigmoid_backward")
@rounds_steps(torch.float16)
def sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    return p.mul(p.mul(grad, p.sub(1.0, y)), y)


@decompose("tanh_backward")
@rounds_once
def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return p.mul(grad, p.sub(1.0, p.mul(y, y)))


@decompose("celu")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(x, alpha, 1.0, 1.0 / alpha)


@decompose("softshrink_backward", "hardshrink_backward")
def shrink_backward(grad: Tensor, x: Tensor, limit: float) -> Tensor:
    return p.where(p.logical_and(p.ge(x, -limit), p.le(x, limit)), 0.0, grad)


@decompose("logit_backward")
@rounds_steps(torch.bfloat16, torch.float16)
def logit_backward(grad: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    low = 0.0 if eps is None else eps
    inside = p.logical_and(p.ge(x, rounded(low, x)), p.le(x, rounded(1.0 - low, x)))
    return p.where(inside, p.div(grad, p.mul(x, p.sub(1.0, x))), math.nan if eps is None else 0.0)


@decompose("logit")
@rounds_steps(torch.bfloat16, torch.float16)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = floating(x)
    inside = x if eps is None else p.clamp(x, eps, 1.0 - eps)
    return p.log(p.div(inside, p.sub(1.0, inside)))


@decompose("hardshrink")
def hardshrink(x: Tensor, limit: float = 0.5) -> Tensor:
    return p.where(p.logical_and(p.ge(x, -limit), p.le(x, limit)), 0.0, x)


@decompose("softshrink")
@rounds_once
def softshrink(x: Tensor, limit: float = 0.5) -> Tensor:
    outside = p.where(p.gt(x, limit), p.sub(x, limit), p.add(x, limit))
    return p.where(p.le(p.absolute(x), limit), p.mul(x, 0.0), outside)


@decompose("_prelu_kernel")
@rounds_once
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    return p.where(p.gt(x, 0), x, p.mul(weight, x))


@decompose("_prelu_kernel_backward")
@rounds_once
def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    positive = p.gt(x, 0)
    return p.where(positive, grad, p.mul(weight, grad)), p.where(positive, 0.0, p.mul(x, grad))


@decompose("glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    left, right = p.slice_(x, dim, 0, half), p.slice_(x, dim, half, 2 * half)
    return _gate(left, right)


@rounds_once
def _gate(left: Tensor, right: Tensor) -> Tensor:
    return p.mul(left, p.sigmoid(right))


@decompose("glu_backward")
def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    half = x.shape[dim] // 2
    left, right = p.slice_(x, dim, 0, half), p.slice_(x, dim, half, 2 * half)
    s = p.sigmoid(right)
    return p.cat([p.mul(grad, s), _gate_gradient(grad, left, s)], dim)


@rounds_once
def _gate_gradient(grad: Tensor, left: Tensor, s: Tensor) -> Tensor:
    """Multiplied in eager's order: a product that is zero on the way stays so."""
    return p.mul(p.mul(p.mul(p.sub(1.0, s), s), left), grad)


@decompose("rrelu_with_noise_backward")
@rounds_once
def rrelu_with_noise_backward(
    grad: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, of_result: bool
) -> Tensor:
    """In training the noise is the slope, else the mean of the slopes."""
    if training:
        return p.mul(noise, grad)
    return p.where(p.gt(x, 0), grad, p.mul(grad, (lower + upper) / 2))
