"""Shape rules of operators whose results are contiguous whatever their operands are.

PyTorch's shape functions preserve a layout there, or take that of one operand. They still decide sizes and dtypes, and
what is refused. Neighbours: as `rules.py`; reductions are in `rules_reductions.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.execute import aten, common_device, plan_of, run_on_meta
from stator.fake.layout import promote, same
from stator.fake.overloads import overload
from stator.fake.rules import broadcast, fresh, rule, variants
from stator.fake.tensor import FakeTensor, make


def _packed(func: Any, *args: Any, **kwargs: Any) -> Any:
    found = run_on_meta(func, plan_of(func), args, kwargs)
    return tuple(map(_contiguous, found)) if isinstance(found, tuple) else _contiguous(found)


def _contiguous(x: FakeTensor) -> FakeTensor:
    made: FakeTensor = make(x.shape, x.dtype, x.device)
    return made


def _enter(name: str) -> None:
    func = overload(name)

    @rule(name)
    def packed(*args: Any, **kwargs: Any) -> Any:
        return _packed(func, *args, **kwargs)


for _name in (
    *variants("isin", "Tensor_Tensor Tensor_Scalar"),
    *variants("glu_backward"),
):
    _enter(_name)


@rule(aten.nll_loss2d_forward.default)
def _nll_of_images(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    fits = x.dim() == 4 and target.dim() == 3 and target.dtype in (torch.int64, torch.uint8)
    fits = fits and same(target.shape, (x.shape[0], *x.shape[2:]))
    if not fits or (weight is not None and not (weight.dtype is x.dtype and same(weight.shape, x.shape[1:2]))):
        return _packed(aten.nll_loss2d_forward.default, x, target, weight, reduction, ignore)
    return make(target.shape if reduction == 0 else (), x.dtype, x.device), make((), x.dtype, x.device)


@rule(aten.nll_loss2d_backward.default)
def _nll_of_images_backward(grad: Any, x: Any, *args: Any) -> Any:
    return make(x.shape, x.dtype, x.device) if x.is_contiguous() else NotImplemented


@rule(aten.angle.default)
def _angle(x: Any) -> Any:
    """Of complex numbers a part of a complex result is copied."""
    return _packed(aten.angle.default, x) if x.is_complex() else NotImplemented


@rule(aten.normal.Tensor_float, aten.normal.Tensor_Tensor)
def _normal(mean: Any, deviation: Any = 1.0, **options: Any) -> Any:
    """Of the dtype of the mean, whatever it is; PyTorch's shape functions promote, and refuse whole numbers."""
    tensors = [value for value in (mean, deviation) if isinstance(value, FakeTensor)]
    size = broadcast(tensors)
    return NotImplemented if size is None else make(size, mean.dtype, common_device(tensors))


@rule(aten.normal.float_Tensor)
def _normal_around(mean: Any, deviation: Any, **options: Any) -> Any:
    return _contiguous(deviation)


@rule(*variants("huber_loss_backward"))
def _huber_backward(grad: Any, x: Any, target: Any, *args: Any) -> Any:
    if not grad.dtype == x.dtype == target.dtype:
        raise Unsupported("huber_loss", "eager refuses its gradient for operands of two dtypes, when backward runs")
    return _distance_backward(grad, x, target)


@rule(*variants("mse_loss_backward smooth_l1_loss_backward"))
def _distance_backward(grad: Any, x: Any, target: Any, *args: Any) -> Any:
    """PyTorch's shape functions divide by the number of elements, of which there may be none."""
    made = fresh((x, target, grad), promote((x, target)))
    return _contiguous(made) if x.device.type == "cpu" else made
