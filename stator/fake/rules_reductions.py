"""Shape rules of reductions and of running sums: sizes without the reduced dims, and dtypes that totals have.

Results are contiguous, whatever the operand is. Neighbours: `rules.py` has the common operators; `execute.py` owns the
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from stator.fake.execute import aten, plan_of, run_on_meta
from stator.fake.layout import is_float
from stator.fake.rules import rule
from stator.fake.tensor import make


def reduced_size(size: Sequence[int], dims: Any, keepdim: bool) -> list[int]:
    """The size after reducing `dims` (None or empty: all)."""
    ndim = len(size)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        gone = set(range(ndim))
    else:
        gone = {dim % max(ndim, 1) for dim in (dims if isinstance(dims, (list, tuple)) else (dims,))}
    if keepdim:
        return [1 if i in gone else extent for i, extent in enumerate(size)]
    return [extent for i, extent in enumerate(size) if i not in gone]


def _sum_dtype(x: Any, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if is_float(x.dtype) else torch.int64)


@rule(aten.sum.dim_IntList)
def _sum(x: Any, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return make(reduced_size(x.shape, dims, keepdim), _sum_dtype(x, dtype), x.device)


@rule(aten.prod.dim_int)
def _prod(x: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return make(reduced_size(x.shape, dim, keepdim), _sum_dtype(x, dtype), x.device)


@rule(aten.sum.default, aten.prod.default)
def _sum_all(x: Any, *, dtype: Any = None) -> Any:
    return make((), _sum_dtype(x, dtype), x.device)


@rule(aten.count_nonzero.dim_IntList)
def _count(x: Any, dims: Any) -> Any:
    return make(reduced_size(x.shape, dims, False), torch.int64, x.device)


@rule(aten.count_nonzero.default)
def _count_all(x: Any, dim: int | None = None) -> Any:
    return make(() if dim is None else reduced_size(x.shape, dim, False), torch.int64, x.device)


@rule(aten.trace.default)
def _trace(x: Any) -> Any:
    return make((), _sum_dtype(x, None), x.device) if x.dim() == 2 else NotImplemented


@rule(aten.mean.dim)
def _mean(x: Any, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dtype = dtype or x.dtype
    return make(reduced_size(x.shape, dims, keepdim), dtype, x.device) if is_float(dtype) else NotImplemented


@rule(aten.mean.default)
def _mean_all(x: Any, *, dtype: Any = None) -> Any:
    return make((), dtype or x.dtype, x.device) if is_float(dtype or x.dtype) else NotImplemented


@rule(aten.logsumexp.default)
def _logsumexp(x: Any, dims: Any, keepdim: bool = False) -> Any:
    return make(reduced_size(x.shape, dims, keepdim), x.dtype, x.device) if is_float(x.dtype) else NotImplemented


def _check_reduced(x: Any, dims: Any) -> None:
    """Raise as eager's kernels do where there is nothing that an extreme could be; those for shapes let some pass."""
    whole = dims is None or (isinstance(dims, (list, tuple)) and not dims)
    if whole and 0 in x.shape:
        raise RuntimeError("Expected reduction dim to be specified for input.numel() == 0.")
    if not whole and x.dim():
        for dim in dims if isinstance(dims, (list, tuple)) else (dims,):
            if x.shape[dim] == 0:
                raise IndexError(f"Expected reduction dim {dim % x.dim()} to have non-zero size.")


@rule(aten.amax.default, aten.amin.default)
def _amax(x: Any, dims: Any = (), keepdim: bool = False) -> Any:
    _check_reduced(x, dims)
    return make(reduced_size(x.shape, dims, keepdim), x.dtype, x.device)


@rule(aten.max.default, aten.min.default)
def _max(x: Any) -> Any:
    _check_reduced(x, None)
    return make((), x.dtype, x.device)


@rule(aten.max.dim, aten.min.dim)
def _max_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    _check_reduced(x, dim)
    size = reduced_size(x.shape, dim, keepdim)
    return make(size, x.dtype, x.device), make(size, torch.int64, x.device)


@rule(aten.argmax.default, aten.argmin.default)
def _argmax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    _check_reduced(x, dim)
    return make(reduced_size(x.shape, dim, keepdim), torch.int64, x.device)


def _norm(func: Any, x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype is None and is_float(x.dtype) and 0 not in x.shape:
        return make(reduced_size(x.shape, dims, keepdim), x.dtype.to_real(), x.device)
    # The kernel for shapes, which knows what has no norm, reads a negative dim as none in some releases. And what
    # has no elements gets the strides from it that the operand's had.
    counted = None if dims is None else [dim + x.dim() if -x.dim() <= dim < 0 else dim for dim in dims]
    kwargs = {} if dtype is None else {"dtype": dtype}
    found = run_on_meta(func, plan_of(func), (x, order, counted, keepdim), kwargs)
    return make(found.shape, found.dtype, found.device) if 0 in found.shape else found


for _func in (aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype, aten.linalg_vector_norm.default):
    rule(_func)(partial(_norm, _func))


@rule(aten.var.correction)
def _var(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not is_float(x.dtype) and not x.is_complex():
        return NotImplemented
    return make(reduced_size(x.shape, dims, keepdim), x.dtype.to_real(), x.device)


@rule(aten.var_mean.correction)
def _var_mean(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not is_float(x.dtype) and not x.is_complex():
        return NotImplemented
    size = reduced_size(x.shape, dims, keepdim)
    return make(size, x.dtype.to_real(), x.device), make(size, x.dtype, x.device)


@rule(aten.any.default, aten.all.default)
def _any(x: Any) -> Any:
    return make((), torch.uint8 if x.dtype is torch.uint8 else torch.bool, x.device)


@rule(aten.any.dim, aten.all.dim)
def _any_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return make(reduced_size(x.shape, dim, keepdim), dtype, x.device)


@rule(aten.cumsum.default, aten.cumprod.default)
def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return make(x.shape, _sum_dtype(x, dtype), x.device)
