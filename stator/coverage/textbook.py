"""Formulas of norms and the like by the textbook, of operators of their own, which take sums in one order.

In the dtype that half types are computed in; eager's own kernel gives the geometry of the results, which are written
over. Neighbour: `reordered.py` has the sums in here taken in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stator.prims.dtypes import HALF_TYPES

SQRT_HALF = 0.5**0.5
DENSITY_AT_0 = (2 * math.pi) ** -0.5
GELU_SCALE, GELU_CUBE = (2 / math.pi) ** 0.5, 0.044715


def _norm(out: Any, x: Tensor, dims: Sequence[int], affine: Any) -> Any:
    """Fills (normalised, mean, 1 / deviation)."""
    normalised, mean, rstd = out
    weight, bias, eps = affine
    wide = x.float() if x.dtype in HALF_TYPES else x
    centre = wide.mean(list(dims), True)
    scale = ((wide - centre).square().mean(list(dims), True) + eps).rsqrt()
    normal = (wide - centre) * scale
    normal = normal if weight is None else normal * weight
    normal = normal if bias is None else normal + bias
    normalised.copy_(normal.reshape(normalised.shape))
    for kept, value in ((mean, centre), (rstd, scale)):
        if kept.numel() == value.numel():
            kept.copy_(value.reshape(kept.shape))
    return out


def _layer_norm(out: Any, *args: Any) -> Any:
    x, shape, weight, bias, eps = args
    return _norm(out, x, range(-len(shape), 0), (weight, bias, eps))


def _rms_norm(out: Any, *args: Any) -> Any:
    """Fills (normalised, 1 / root of the mean square): nothing is subtracted, where a kernel updates a mean."""
    x, shape, weight, eps = args
    wide = x.float() if x.dtype in HALF_TYPES else x
    scale = wide.square().mean([*range(-len(shape), 0)], True)
    scale = (scale + (torch.finfo(wide.dtype).eps if eps is None else eps)).rsqrt()
    normal = wide * scale
    out[0].copy_(normal if weight is None else normal * weight)
    out[1].copy_(scale.reshape(out[1].shape))
    return out


def _group_norm(out: Any, *args: Any) -> Any:
    x, weight, bias, n, c, hw, groups, eps = args
    weight, bias = (None if t is None else t.view(1, groups, c // groups, 1) for t in (weight, bias))
    return _norm(out, x.reshape(n, groups, c // groups, hw), (2, 3), (weight, bias, eps))


def _batch_norm(out: Any, *args: Any) -> Any:
    x, weight, bias, _, _, training, _, eps = args
    if not training:
        return out
    shape = [1, -1] + [1] * (x.dim() - 2)
    weight, bias = (None if t is None else t.view(shape) for t in (weight, bias))
    normalised, mean, rstd = _norm(out, x, [0, *range(2, x.dim())], (weight, bias, eps))
    if x.device.type == "cpu" and x.is_contiguous() and rstd.numel():  # both are multiplied before one is subtracted
        nothing = ((rstd == 0) & mean.isfinite()).view(shape) & x.isfinite()
        normalised.copy_(torch.where(nothing, torch.zeros_like(rstd).view(shape) if bias is None else bias, normalised))
    return out


def _norm_backward(
    out: tuple[Tensor, ...], shape: Sequence[int], dims: Sequence[int], given: Sequence[Tensor], weight: Tensor | None
) -> tuple[Tensor, ...]:
    """The gradient of the input, as it follows from the normalised input; others as they are."""
    if out[0] is None:
        return out
    grad, x, mean, rstd = (t.float() if t.dtype in HALF_TYPES else t for t in given)
    scaled = grad.reshape(shape) if weight is None else grad.reshape(shape) * weight
    normal = (x.reshape(shape) - mean) * rstd
    inside = scaled - scaled.mean(list(dims), True) - normal * (scaled * normal).mean(list(dims), True)
    out[0].copy_((inside * rstd).reshape(out[0].shape))
    return out


def _layer_norm_backward(out: Any, *args: Any) -> Any:
    grad, x, shape, mean, rstd, weight, *_ = args
    return _norm_backward(out, x.shape, range(-len(shape), 0), (grad, x, mean, rstd), weight)


def _rms_norm_backward(out: Any, *args: Any) -> Any:
    grad, x, shape, rstd, weight, _ = args
    if out[0] is None:
        return out
    wide = [t.float() if t.dtype in HALF_TYPES else t for t in (grad, x, rstd)]
    scaled, normal = wide[0] if weight is None else wide[0] * weight, wide[1] * wide[2]
    inside = scaled - normal * (scaled * normal).mean([*range(-len(shape), 0)], True)
    out[0].copy_(inside * wide[2])
    return out


def _group_norm_backward(out: Any, *args: Any) -> Any:
    grad, x, mean, rstd, weight, n, c, hw, groups, _ = args
    statistics = [t.view(n, groups, 1, 1) for t in (mean, rstd)]
    weight = None if weight is None else weight.view(1, groups, c // groups, 1)
    shape = (n, groups, c // groups, hw)
    return _norm_backward(out, shape, (2, 3), (grad, x, *statistics), weight)


def _batch_norm_backward(out: Any, *args: Any) -> Any:
    grad, x, weight, _, _, mean, rstd, training, *_ = args
    if not training:
        return out
    shape = [1, -1] + [1] * (x.dim() - 2)
    statistics = [t.view(shape) for t in (mean, rstd)]
    weight = None if weight is None else weight.view(shape)
    return _norm_backward(out, x.shape, [0, *range(2, x.dim())], (grad, x, *statistics), weight)


def _variance(x: Tensor, args: Sequence[Any], correction: float | None) -> tuple[Tensor, Tensor]:
    """(variance, mean) in float64, as eager's: the mean of squares, where eager updates both by differences."""
    given = args[0] if args and not isinstance(args[0], bool) else None
    dims = [given] if isinstance(given, int) else list(given or range(x.dim()))
    wide = x.double()
    mean = wide.mean(dims, True)
    count = wide.numel() // max(mean.numel(), 1)
    total = (wide - mean).square().sum(dims, True)
    return total / max(count - (1 if correction is None else correction), 0), mean


def _spread(out: Any, x: Tensor, *args: Any, root: bool, correction: float | None = 1, **kwargs: Any) -> Any:
    if x.is_complex():
        return out
    variance, mean = _variance(x, args, correction)
    filled = out if isinstance(out, tuple) else (out,)
    for kept, value in zip(filled, (variance.sqrt() if root else variance, mean), strict=False):
        kept.copy_(value.reshape(kept.shape))
    return out


def _gelu(out: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """Far below 0 one is added to the rounded number beside -1."""
    wide = x.float() if x.dtype in HALF_TYPES else x
    if approximate == "none":
        return out.copy_(wide * 0.5 * (torch.special.erf(wide * SQRT_HALF) + 1.0))
    return out.copy_(0.5 * wide * (1.0 + torch.tanh(_inside(wide))))


def _inside(x: Tensor) -> Tensor:
    """What the tangent of `gelu` is taken of."""
    return GELU_SCALE * (x + GELU_CUBE * x * x * x)


def _gelu_backward(out: Tensor, grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    grad, wide = (t.float() if t.dtype in HALF_TYPES else t for t in (grad, x))
    if approximate == "none":
        share = 0.5 * (1.0 + torch.special.erf(wide * SQRT_HALF))
        slope = wide * (wide * wide * -0.5).exp() * DENSITY_AT_0
    else:
        tangent = torch.tanh(_inside(wide))
        share = 0.5 * (1.0 + tangent)
        inner = GELU_SCALE * (1.0 + 3 * GELU_CUBE * wide * wide)
        slope = 0.5 * wide * (1.0 - tangent * tangent) * inner
    return out.copy_(grad * (share + slope))


def _softmax(out: Tensor, x: Tensor, dim: int, *args: Any) -> Tensor:
    shares = _centred(x, dim).exp()
    return out.copy_(shares / shares.sum(dim, True))


def _safe_softmax(out: Tensor, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Of a row without a number above -inf zeros."""
    x = x if dtype is None else x.to(dtype)
    none = (x == -math.inf).all(dim, True)
    return _softmax(out, x, dim).masked_fill_(none, 0.0)


def _log_softmax(out: Tensor, x: Tensor, dim: int, *args: Any) -> Tensor:
    """Nothing, or what is beside it, where one share is nearly all: that depends on the order of the others."""
    centred = _centred(x, dim)
    return out.copy_(centred - centred.exp().sum(dim, True).log())


def _softmax_backward(out: Tensor, grad: Tensor, shares: Tensor, dim: int, *args: Any) -> Tensor:
    grad, shares = (t.float() if t.dtype in HALF_TYPES else t for t in (grad, shares))
    return out.copy_(grad * shares - shares * (grad * shares).sum(dim, True))


def _log_softmax_backward(out: Tensor, grad: Tensor, logs: Tensor, dim: int, *args: Any) -> Tensor:
    grad, logs = (t.float() if t.dtype in HALF_TYPES else t for t in (grad, logs))
    return out.copy_(grad - logs.exp() * grad.sum(dim, True))


def _centred(x: Tensor, dim: int) -> Tensor:
    wide = x.float() if x.dtype in HALF_TYPES else x
    return wide - wide.amax(dim, True) if x.numel() else wide


#: Operators → what writes over their results, which come before the operands.
NORMS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "fused_rms_norm": _rms_norm,
    "fused_rms_norm_backward": _rms_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "var": partial(_spread, root=False),
    "std": partial(_spread, root=True),
    "var_mean": partial(_spread, root=False),
    "std_mean": partial(_spread, root=True),
    "softmax": _softmax,
    "safe_softmax": _safe_softmax,
    "log_softmax": _log_softmax,
    "softmax_backward_data": _softmax_backward,
    "log_softmax_backward_data": _log_softmax_backward,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
}
