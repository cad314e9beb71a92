"""Layer, RMS, group and batch norm with their gradients.

Variance is two-pass (mean, then mean of squared deviations) in the accumulation type: float32 for
half types. Batch norm is written once as a function of its statistics, `batch_norm_functional`,
that gives the new running statistics as values; the write-back of mutated buffers is `stator.aot`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stator.base.device import HOST
from stator.prims import names as p
from stator.prims.decompositions.layout import contiguous, suggested
from stator.prims.dtypes import HALF_TYPES, cast, compute_type
from stator.prims.table import decompose

Optional3 = tuple[Tensor | None, Tensor | None, Tensor | None]
#: Elements of a group from which on its gradients on a GPU are made of sums of each channel: what these are of is read
#: once. On the host it was not measured.
_BY_CHANNELS = 1 << 14


def _statistics_type(x: Tensor, weight: Tensor | None) -> torch.dtype:
    """What eager saves mean and rstd in: on CPU the parameters' type, elsewhere float32 for half types."""
    if x.dtype in HALF_TYPES and x.device.type == "cpu":
        return weight.dtype if weight is not None else x.dtype
    return compute_type(x.dtype)


def _moments(wide: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, 1 / sqrt(variance + eps), deviations from the mean), dims kept."""
    mean = p.mean(wide, dims, True)
    centred = p.sub(wide, mean)
    rstd = p.rsqrt(p.add(p.mean(p.mul(centred, centred), dims, True), eps))
    return mean, rstd, centred


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        value = p.mul(value, cast(weight, value.dtype))
    return value if bias is None else p.add(value, cast(bias, value.dtype))


@decompose("native_layer_norm")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0:
        return NotImplemented
    wide = cast(contiguous(x), compute_type(x.dtype))
    mean, rstd, centred = _moments(wide, list(range(-len(shape), 0)), eps)
    kept = _statistics_type(x, weight)
    out = _affine(p.mul(centred, rstd), weight, bias)
    return cast(out, x.dtype), cast(mean, kept), cast(rstd, kept)


@decompose("native_layer_norm_backward")
def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Optional3:
    if x.numel() == 0:
        return NotImplemented
    wide = compute_type(x.dtype)
    inner = list(range(-len(shape), 0))
    outer = list(range(x.dim() - len(shape)))
    g, rstd = cast(contiguous(grad), wide), cast(rstd, wide)
    normal = p.mul(p.sub(cast(contiguous(x), wide), cast(mean, wide)), rstd)
    d_input = d_weight = d_bias = None
    if mask[0]:
        scaled = g if weight is None else p.mul(g, cast(weight, wide))
        centre = p.mean(scaled, inner, True)
        slope = p.mean(p.mul(scaled, normal), inner, True)
        inside = p.sub(p.sub(scaled, centre), p.mul(normal, slope))
        d_input = cast(p.mul(inside, rstd), x.dtype)
    if mask[1] and weight is not None:
        d_weight = cast(_sum_over(p.mul(g, normal), outer), weight.dtype)
    if mask[2]:
        like = bias if bias is not None else weight
        d_bias = cast(_sum_over(g, outer), like.dtype if like is not None else x.dtype)
    return d_input, d_weight, d_bias


def _sum_over(value: Tensor, dims: list[int]) -> Tensor:
    """Sum over dims; an empty list means none of them (to ATen it would mean all)."""
    return p.sum_(value, dims) if dims else p.clone(value)


@decompose("_fused_rms_norm")
def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    if x.numel() == 0 or x.dtype.is_complex:
        return NotImplemented
    wide = cast(contiguous(x), compute_type(x.dtype))
    limit = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = p.rsqrt(p.add(p.mean(p.mul(wide, wide), list(range(-len(shape), 0)), True), limit))
    return cast(_affine(p.mul(wide, rstd), weight, None), x.dtype), rstd


@decompose("_fused_rms_norm_backward")
def rms_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    if x.numel() == 0 or x.dtype.is_complex:
        return NotImplemented
    wide = compute_type(x.dtype)
    g, rstd = cast(contiguous(grad), wide), cast(rstd, wide)
    normal = p.mul(cast(contiguous(x), wide), rstd)
    d_input = d_weight = None
    if mask[0]:
        scaled = g if weight is None else p.mul(g, cast(weight, wide))
        slope = p.mean(p.mul(scaled, normal), list(range(-len(shape), 0)), True)
        d_input = cast(p.mul(p.sub(scaled, p.mul(normal, slope)), rstd), x.dtype)
    if mask[1] and weight is not None:
        d_weight = cast(_sum_over(p.mul(g, normal), list(range(x.dim() - len(shape)))), weight.dtype)
    return d_input, d_weight


@decompose("native_group_norm")
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0 or not x.is_contiguous():
        return NotImplemented
    wide = cast(p.view(x, [n, groups, c // groups, hw]), compute_type(x.dtype))
    mean, rstd, centred = _moments(wide, [2, 3], eps)
    per_channel = [1, groups, c // groups, 1]
    out = _affine(
        p.mul(centred, rstd),
        None if weight is None else p.view(weight, per_channel),
        None if bias is None else p.view(bias, per_channel),
    )
    kept = _statistics_type(x, weight)
    return (
        p.view(cast(out, x.dtype), list(x.shape)),
        cast(p.view(mean, [n, groups]), kept),
        cast(p.view(rstd, [n, groups]), kept),
    )


@decompose("native_group_norm_backward")
def group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n: int,
    c: int,
    hw: int,
    groups: int,
    mask: Sequence[bool],
) -> Optional3:
    if x.numel() == 0:
        return NotImplemented
    wide = compute_type(x.dtype)
    grouped, per_group = [n, groups, c // groups, hw], [n, groups, 1, 1]
    g = p.view(cast(contiguous(grad), wide), grouped)
    scale = p.view(cast(rstd, wide), per_group)
    normal = p.mul(p.sub(p.view(cast(contiguous(x), wide), grouped), p.view(cast(mean, wide), per_group)), scale)
    if x.device.type != HOST and type(hw) is int and hw * c >= groups * _BY_CHANNELS:
        return _group_norm_backward_by_channels(x, weight, g, normal, scale, mask)
    d_input = d_weight = d_bias = None
    if mask[0]:
        scaled = g if weight is None else p.mul(g, cast(p.view(weight, [1, groups, c // groups, 1]), wide))
        inside = p.sub(scaled, p.mean(scaled, [2, 3], True))
        inside = p.sub(inside, p.mul(normal, p.mean(p.mul(scaled, normal), [2, 3], True)))
        d_input = cast(p.view(p.mul(inside, scale), list(x.shape)), x.dtype)
    if mask[1]:
        d_weight = p.view(cast(p.sum_(p.mul(g, normal), [0, 3]), x.dtype if weight is None else weight.dtype), [c])
    if mask[2]:
        d_bias = p.view(cast(p.sum_(g, [0, 3]), x.dtype if weight is None else weight.dtype), [c])
    return d_input, d_weight, d_bias


def _group_norm_backward_by_channels(
    x: Tensor, weight: Tensor | None, g: Tensor, normal: Tensor, scale: Tensor, mask: Sequence[bool]
) -> Optional3:
    """The gradients from sums of each channel of each image, of which all other sums are made: one pass for all."""
    _, groups, channels, hw = g.shape
    dtype = x.dtype if weight is None else weight.dtype
    sums, products = p.sum_(g, [3], True), p.sum_(p.mul(g, normal), [3], True)
    d_input = None
    if mask[0]:
        factor = None if weight is None else cast(p.view(weight, [1, groups, channels, 1]), g.dtype)
        inside = g if factor is None else p.mul(g, factor)
        of_group = [each if factor is None else p.mul(each, factor) for each in (sums, products)]
        first, second = [p.div(p.sum_(each, [2], True), float(channels * hw)) for each in of_group]
        inside = p.sub(p.sub(inside, first), p.mul(normal, second))
        d_input = cast(p.view(p.mul(inside, scale), list(x.shape)), x.dtype)
    d_weight, d_bias = [p.view(cast(p.sum_(each, [0]), dtype), [groups * channels]) for each in (products, sums)]
    return d_input, d_weight if mask[1] else None, d_bias if mask[2] else None


def _channel_view(value: Tensor, x: Tensor) -> Tensor:
    return p.view(value, [1, -1] + [1] * (x.dim() - 2))


def batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """(output, saved mean, saved rstd, new running mean, new running variance)."""
    wide = cast(x, compute_type(x.dtype))
    if not training:
        assert running_mean is not None and running_var is not None
        mean = _channel_view(cast(running_mean, wide.dtype), x)
        rstd = p.rsqrt(p.add(_channel_view(cast(running_var, wide.dtype), x), eps))
        out = cast(_batch_affine(p.mul(p.sub(wide, mean), rstd), weight, bias, x), x.dtype)
        empty = p.full([0], 0.0, dtype=_statistics_type(x, weight), device=x.device)
        kept = (empty, p.clone(empty)) if x.device.type == "cpu" else (p.clone(_flat(mean)), _flat(rstd))
        return out, *kept, p.clone(running_mean), p.clone(running_var)
    mean, variance, rstd = _batch_statistics(x, wide, eps)
    out = cast(_batch_affine(p.mul(p.sub(wide, _centre(x, mean, rstd)), rstd), weight, bias, x), x.dtype)
    count = math.prod(x.shape) // x.shape[1]
    new_mean = None if running_mean is None else _blend(running_mean, _flat(mean), momentum, 1.0)
    unbiased = count / max(count - 1, 1)
    new_var = None if running_var is None else _blend(running_var, _flat(variance), momentum, unbiased)
    kept_type = _statistics_type(x, weight)
    return out, cast(_flat(mean), kept_type), cast(_flat(rstd), kept_type), new_mean, new_var


def _batch_statistics(x: Tensor, wide: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, variance, 1 / sqrt(variance + eps)) of each channel, dims kept.

    Eager's kernels for the CPU add in float64, which no sum of float32 overflows, where x is contiguous, and squares
    where its memory has gaps or another order; where channels lie innermost, neither.
    """
    dims = [0, *range(2, x.dim())]
    added = squared = wide.dtype
    if x.dtype is torch.float32 and x.device.type == HOST:
        added = torch.float64 if x.is_contiguous() and x.stride(1) != 1 else wide.dtype
        squared = wide.dtype if _is_swept(x) else torch.float64
    mean = cast(p.mean(cast(wide, added), dims, True), wide.dtype)
    centred = p.sub(cast(wide, squared), mean)
    variance = p.mean(p.mul(centred, centred), dims, True)
    return mean, variance, cast(p.rsqrt(p.add(variance, eps)), wide.dtype)


def _is_swept(x: Tensor) -> bool:
    """Whether eager's kernels for the CPU go through the memory as it lies: in order, or with channels innermost."""
    return x.is_contiguous(memory_format=suggested(x))


def _centre(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """What forward subtracts: where a variance overflowed, and so may a difference, no mean that is a number.

    What eager's kernels for the CPU sweep they multiply by nothing then, and the mean too; elsewhere they subtract it,
    and so does backward of all of them.
    """
    swept = mean.device.type == HOST and _is_swept(x)
    return p.where(p.eq(rstd, 0.0), p.mul(mean, 0.0), mean) if swept else mean


def _batch_affine(value: Tensor, weight: Tensor | None, bias: Tensor | None, x: Tensor) -> Tensor:
    return _affine(
        value,
        None if weight is None else _channel_view(weight, x),
        None if bias is None else _channel_view(bias, x),
    )


def _flat(value: Tensor) -> Tensor:
    return p.view(value, [-1])


def _blend(old: Tensor, new: Tensor, momentum: float, factor: float) -> Tensor:
    """momentum * factor * new + (1 - momentum) * old, in the type of `old`."""
    mixed = p.add(p.mul(new, momentum * factor), p.mul(cast(old, new.dtype), 1.0 - momentum))
    return cast(mixed, old.dtype)


@decompose("_native_batch_norm_legit_functional")
def batch_norm_legit_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor | None, ...]:
    if x.numel() == 0:
        return NotImplemented
    return batch_norm_functional(x, weight, bias, running_mean, running_var, training, momentum, eps)


@decompose("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor | None, ...]:
    if x.numel() == 0:
        return NotImplemented
    return batch_norm_functional(x, weight, bias, None, None, True, momentum, eps)[:3]


@decompose("native_batch_norm", "_native_batch_norm_legit_no_training")
def batch_norm_pure(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    *flags: float,
) -> tuple[Tensor | None, ...]:
    """Only the calls that mutate nothing: evaluation, or training without running statistics."""
    training, momentum, eps = (False, *flags) if len(flags) == 2 else flags
    if x.numel() == 0 or (training and running_mean is not None):
        return NotImplemented
    return batch_norm_functional(x, weight, bias, running_mean, running_var, bool(training), momentum, eps)[:3]


@decompose("native_batch_norm_backward")
def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Optional3:
    if x.numel() == 0:
        return NotImplemented
    wide = compute_type(x.dtype)
    if training:
        assert mean is not None and rstd is not None
        scale = cast(rstd, wide)
        centre = _channel_view(cast(mean, wide), x)
    else:
        assert running_mean is not None and running_var is not None
        scale = p.rsqrt(p.add(cast(running_var, wide), eps))
        centre = _channel_view(cast(running_mean, wide), x)
    dims = [0, *range(2, x.dim())]
    g = cast(grad, wide)
    centred = p.sub(cast(x, wide), centre)
    total = p.sum_(g, dims)
    d_input = d_weight = d_bias = None
    inside = g
    if training:  # by the textbook, of normalised numbers: their products with gradients do not overflow
        count = math.prod(x.shape) // x.shape[1]  # divided by: its reciprocal is rounded
        normal = p.mul(centred, _channel_view(scale, x))
        weighted = p.sum_(p.mul(g, normal), dims)
        inside = p.sub(g, _channel_view(p.div(total, count), x))
        inside = p.sub(inside, p.mul(normal, _channel_view(p.div(weighted, count), x)))
    else:
        weighted = p.mul(p.sum_(p.mul(g, centred), dims), scale)
    if mask[0]:
        factor = scale if weight is None else p.mul(scale, cast(weight, wide))
        d_input = cast(p.mul(inside, _channel_view(factor, x)), x.dtype)
    kept = wide if weight is None else weight.dtype
    if mask[1]:
        d_weight = cast(weighted, kept) if weighted.dtype is not kept else p.clone(weighted)
    if mask[2]:
        d_bias = cast(total, kept) if total.dtype is not kept else p.clone(total)
    return d_input, d_weight, d_bias


@decompose("batch_norm_backward")
def batch_norm_with_update_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: Tensor,
) -> Optional3:
    """What a kernel that keeps something in `reserve` needs is not needed here."""
    return batch_norm_backward(grad, x, weight, running_mean, running_var, mean, rstd, training, eps, mask)
