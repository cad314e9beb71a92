"""Sizes and dtypes that kernels refuse and PyTorch's shape functions take; what is not refused is left to those.

Neighbours: as `rules.py`; `refusals.py` asks kernels about dtypes.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.execute import aten
from stator.fake.layout import is_float, is_plain, promote, same
from stator.fake.rules import broadcast, fresh, rule
from stator.fake.tensor import make


@rule(aten.addmv.default)
def _addmv(bias: Any, matrix: Any, vector: Any, **numbers: Any) -> Any:
    if bias.dim() > 1:
        raise RuntimeError(f"addmv: a bias of size {list(bias.shape)} does not expand to a row")
    if not bias.dtype == matrix.dtype == vector.dtype:  # torch 2.11 takes them where there is nothing to multiply
        raise RuntimeError(f"addmv: dtypes differ: {bias.dtype}, {matrix.dtype} and {vector.dtype}")
    fits = matrix.dim() == 2 and tuple(vector.shape) == (matrix.shape[1],) and bias.numel() in (1, matrix.shape[0])
    if fits and 0 in matrix.shape and numbers.get("beta", 1) != 0:  # the kernel multiplies the bias, of its own size
        return make(bias.shape, bias.dtype, bias.device)
    return NotImplemented


@rule(aten.soft_margin_loss.default)
def _soft_margin(x: Any, target: Any, reduction: int = 1) -> Any:
    if broadcast([x, target]) != tuple(x.shape):  # a product in place
        raise RuntimeError(f"soft_margin_loss: the result cannot have the size {list(x.shape)} of the input")
    return NotImplemented if reduction else fresh((x,), x.dtype)


@rule(aten.soft_margin_loss_backward.default)
def _soft_margin_backward(grad: Any, x: Any, target: Any, *args: Any) -> Any:
    """PyTorch's shape functions divide by the number of elements, of which there may be none."""
    if target.dtype is torch.bool:
        raise Unsupported("soft_margin_loss", "eager refuses its gradient for truth values, when backward runs")
    return fresh((x, target, grad), promote((x, target)))


@rule(aten._safe_softmax.default)
def _safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    if not is_float(dtype or x.dtype):
        raise NotImplementedError(f'"softmax" not implemented for {dtype or x.dtype}')
    return make(x.shape, dtype or x.dtype, x.device) if is_plain(x) else NotImplemented


@rule(aten.index_reduce.default)
def _index_reduce(x: Any, dim: int, index: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    check_along("index_reduce", x, dim, index, source)
    return NotImplemented


def check_along(name: str, x: Any, dim: int, index: Any, source: Any) -> None:
    """Raise unless the source has as many dims as `x`, one slice for each position, and slices of that size."""
    if index.dim() > 1 or source.dim() != x.dim():
        raise RuntimeError(f"{name}: positions are one row, and the source has the dims of the input")
    count = source.shape[dim] if source.dim() else 1
    if index.numel() != count:
        raise RuntimeError(f"{name}: {index.numel()} positions for {count} slices of the source")
    if x.dim():
        wanted, given = list(x.shape), list(source.shape)
        del wanted[dim], given[dim]
        if not same(wanted, given):
            raise RuntimeError(f"{name}: slices of size {given} for those of size {wanted}")
