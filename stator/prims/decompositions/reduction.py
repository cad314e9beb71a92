"""Reductions: variances, norms, extrema with positions, and the rarer overloads of sum and mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import flat
from stator.prims.decompositions.pointwise import nan_to_num
from stator.prims.dtypes import cast, compute_type, held
from stator.prims.table import decompose

Dims = int | Sequence[int] | None


def _dims(x: Tensor, dim: Dims) -> list[int]:
    """The dims as non-negative numbers; none given means all."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(x.dim()))
    return [d % max(x.dim(), 1) for d in ((dim,) if isinstance(dim, int) else dim)]


@decompose("sum", also_complex=True)
def sum_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return p.sum_(x, list(range(x.dim())), False, dtype=dtype)


@decompose("mean", also_complex=True)
def mean_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return p.mean(x, list(range(x.dim())), False, dtype=dtype)


@decompose("prod")
def prod_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return p.prod(flat(x), 0, False, dtype=dtype)


def _count(x: Tensor, dims: list[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _widened(x: Tensor) -> Tensor:
    """Eager's kernels for the CPU compute variances in float64, where the squares of no float32 overflow."""
    return cast(x, torch.float64 if x.device.type == "cpu" else compute_type(x.dtype))


def _variance(wide: Tensor, dims: list[int], correction: float, keep: bool) -> tuple[Tensor, Tensor]:
    """(variance, mean), both with or without the reduced dims."""
    mean = p.mean(wide, dims, True)
    centred = p.sub(wide, mean)
    total = p.sum_(p.mul(centred, centred), dims, keep)
    count = _count(wide, dims)
    divisor = max(count - correction, 0)
    variance = p.div(total, divisor)
    if not keep and dims:
        mean = p.squeeze(mean, dims)
    return variance, mean


def _correction(value: float | None) -> float:
    return 1 if value is None else value


@decompose("var.correction")
def var(x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    wide = _widened(x)
    value = _variance(wide, _dims(x, dim), _correction(correction), keepdim)[0]
    return cast(value, x.dtype)


@decompose("std.correction")
def std(x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    wide = _widened(x)
    return cast(p.sqrt(_variance(wide, _dims(x, dim), _correction(correction), keepdim)[0]), x.dtype)


@decompose("var_mean.correction")
def var_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    wide = _widened(x)
    variance, mean = _variance(wide, _dims(x, dim), _correction(correction), keepdim)
    return cast(variance, x.dtype), cast(mean, x.dtype)


@decompose("std_mean.correction")
def std_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    wide = _widened(x)
    variance, mean = _variance(wide, _dims(x, dim), _correction(correction), keepdim)
    return cast(p.sqrt(variance), x.dtype), cast(mean, x.dtype)


@decompose("logsumexp")
def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    if x.dtype.is_complex or x.numel() == 0:
        return NotImplemented
    result = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    wide = cast(x, compute_type(result))
    dims = _dims(x, dim)
    top = p.amax(wide, dims, True)
    top = p.where(p.eq(p.absolute(top), math.inf), 0.0, top)
    value = p.add(p.log(p.sum_(p.exp(p.sub(wide, top)), dims, True)), top)
    return cast(value if keepdim or not dims else p.squeeze(value, dims), result)


@decompose("linalg_vector_norm", also_complex=True)
def vector_norm(
    x: Tensor, order: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    nothing = x.numel() == 0 and not 0 <= order < math.inf  # it has no largest element
    if nothing or (x.is_complex() and dtype is not None):
        return NotImplemented
    x = p.absolute(x) if x.is_complex() else x
    result = dtype or x.dtype
    wide = cast(x, compute_type(result))
    dims = _dims(x, dim)
    if order != 0 and all(x.shape[d] == 1 for d in dims if x.dim()):  # exact, as eager's
        value = p.absolute(wide) if keepdim or not x.dim() else p.squeeze(p.absolute(wide), dims)
    else:
        value = norm_of_terms(wide, order, dims, keepdim)
    return cast(value, result)


def norm_of_terms(x: Tensor, order: float, dims: list[int], keepdim: bool = False) -> Tensor:
    """The norm as a sum of powers, though it be of one."""
    match order:
        case math.inf:
            return p.amax(p.absolute(x), dims, keepdim)
        case _ if order == -math.inf:
            return p.amin(p.absolute(x), dims, keepdim)
        case 0:
            return p.sum_(cast(p.ne(x, 0), x.dtype), dims, keepdim)
        case 1:
            return p.sum_(p.absolute(x), dims, keepdim)
        case 2:
            return p.sqrt(p.sum_(p.mul(x, x), dims, keepdim))
        case _:
            # One by the rounded order: a power of 1e19 shows it where that is not the rounded exponent, times 44.
            order = held(order, x.dtype)
            total = p.sum_(p.power_scalar(p.absolute(x), order), dims, keepdim)
            return p.power_scalar(total, 1.0 / order)


@decompose("norm.ScalarOpt_dim", also_complex=True)
def norm_dim(x: Tensor, order: float | None, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    return vector_norm(x, 2 if order is None else order, dim, keepdim)


@decompose("norm.Scalar", also_complex=True)
def norm(x: Tensor, order: float = 2) -> Tensor:
    return vector_norm(x, order)


@decompose("any", "_is_any_true", also_complex=True)
def any_all(x: Tensor) -> Tensor:
    return _bytes(x, p.any_(x, None, False))


@decompose("any.dim", also_complex=True)
def any_dim(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return _bytes(x, p.any_(x, [dim], keepdim))


def _bytes(x: Tensor, value: Tensor) -> Tensor:
    """any and all of uint8 stay uint8."""
    return cast(value, torch.uint8) if x.dtype is torch.uint8 else value


def _all(x: Tensor, dims: list[int] | None, keepdim: bool) -> Tensor:
    return _bytes(x, p.logical_not(p.any_(p.logical_not(x), dims, keepdim)))


@decompose("all", "_is_all_true", also_complex=True)
def all_(x: Tensor) -> Tensor:
    return _all(x, None, False)


@decompose("all.dim", also_complex=True)
def all_dim(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return _all(x, [dim], keepdim)


@decompose("all.dims", also_complex=True)
def all_dims(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return _all(x, None if dim is None else _dims(x, dim), keepdim)


@decompose("max")
def max_all(x: Tensor) -> Tensor:
    return p.amax(x, list(range(x.dim())), False)


@decompose("min")
def min_all(x: Tensor) -> Tensor:
    return p.amin(x, list(range(x.dim())), False)


@decompose("max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return p.amax(x, [dim], keepdim), p.argmax(_ordered(x), dim, keepdim)


@decompose("min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return p.amin(x, [dim], keepdim), p.argmin(_ordered(x), dim, keepdim)


def _ordered(x: Tensor) -> Tensor:
    """Eager finds no extreme among booleans, but among bytes."""
    return p.to_copy(x, dtype=torch.uint8) if x.dtype is torch.bool else x


@decompose("aminmax")
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = _dims(x, dim)
    return p.amin(x, dims, keepdim), p.amax(x, dims, keepdim)


@decompose("dist", also_complex=True)
def dist(x: Tensor, y: Tensor, order: float = 2) -> Tensor:
    return vector_norm(p.sub(x, y), order)


@decompose("nansum")
def nansum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if dtype is None or dtype.is_floating_point or dtype.is_complex:
        clean = p.where(p.isnan(x), 0, x) if x.is_floating_point() else x
    else:  # where a whole number comes out infinities count as the largest number
        clean = nan_to_num(x)
    return p.sum_(clean, _dims(x, dim), keepdim, dtype=dtype)


@decompose("count_nonzero", also_complex=True)
@decompose("count_nonzero.dim_IntList")
def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    return p.sum_(p.ne(x, 0), _dims(x, dim), False)
