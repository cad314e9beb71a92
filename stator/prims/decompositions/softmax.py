"""Softmax, log-softmax and their gradients: shifted by the maximum, in float32 for half types.

The result is contiguous, as eager's kernels give it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import contiguous
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose


def _wide(x: Tensor) -> Tensor:
    return cast(contiguous(x), compute_type(x.dtype))


def _result_type(x: Tensor, half_to_float: bool) -> torch.dtype:
    return torch.float32 if half_to_float else x.dtype


@decompose("_softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = _wide(x)
    if x.numel() == 0:
        return cast(p.clone(wide), _result_type(x, half_to_float))
    e = p.exp(p.sub(wide, p.amax(wide, [dim], True)))
    return cast(p.div(e, p.sum_(e, [dim], True)), _result_type(x, half_to_float))


@decompose("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = _wide(x)
    if x.numel() == 0:
        return cast(p.clone(wide), _result_type(x, half_to_float))
    shifted = p.sub(wide, p.amax(wide, [dim], True))
    total = p.log(p.sum_(p.exp(shifted), [dim], True))
    return cast(p.sub(shifted, total), _result_type(x, half_to_float))


@decompose("_safe_softmax")
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax where a row of nothing but -inf gives zeros."""
    wide = _wide(x if dtype is None else cast(x, dtype))
    result = dtype or x.dtype
    if x.numel() == 0:
        return cast(p.clone(wide), result)
    top = p.amax(wide, [dim], True)
    masked = p.eq(top, float("-inf"))
    e = p.exp(p.sub(wide, top))
    return p.where(masked, 0.0, cast(p.div(e, p.sum_(e, [dim], True)), result))


@decompose("_softmax_backward_data")
def softmax_backward(grad: Tensor, y: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    wide_y = _wide(y)
    weighted = p.mul(_wide(grad), wide_y)
    return cast(p.sub(weighted, p.mul(wide_y, p.sum_(weighted, [dim], True))), input_dtype)


@decompose("_log_softmax_backward_data")
def log_softmax_backward(grad: Tensor, y: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    wide = _wide(grad)
    total = p.sum_(wide, [dim], True)
    return cast(p.sub(wide, p.mul(p.exp(_wide(y)), total)), input_dtype)
