"""Shape rules of losses, and of the log-sigmoid.

As everywhere a rule answers for the usual layouts and leaves the rest to the meta kernel. Neighbours: as `rules.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import DataDependent
from stator.fake.execute import aten, plan_of, run_on_meta
from stator.fake.layout import is_float, promote, same
from stator.fake.rules import broadcast, fresh, like, rule
from stator.fake.tensor import make


@rule(aten._use_cudnn_ctc_loss.default, aten._use_cudnn_ctc_loss.Tensor)
def _cudnn_aligns(x: Any, targets: Any, lengths: Any, target_lengths: Any, blank: int) -> bool:
    """cuDNN has this loss for one kind of operands; with those, it depends on the lengths."""
    if blank or x.dtype is not torch.float32 or targets.dtype is not torch.int32 or targets.dim() != 1:
        return False
    raise DataDependent("ctc_loss")


@rule(aten._use_miopen_ctc_loss.default, aten._use_miopen_ctc_loss.Tensor)
def _miopen_aligns(*args: Any) -> bool:
    if torch.version.hip is None:
        return False
    raise DataDependent("ctc_loss")


@rule(aten.nll_loss_forward.default)
def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    fits = x.dim() in (1, 2) and target.dtype in (torch.int64, torch.uint8) and same(target.shape, x.shape[:-1])
    if not (fits or (x.dim() == 1 and same(target.shape, (1,)))):
        return NotImplemented
    if weight is not None and weight.dtype is not x.dtype:
        wanted, given = (torch.empty(0, dtype=t.dtype).type()[6:-6] for t in (x, weight))
        raise RuntimeError(f"expected scalar type {wanted} but found {given}")
    if weight is not None and not same(weight.shape, x.shape[-1:]):
        return NotImplemented
    size = (x.shape[0],) if reduction == 0 and x.dim() == 2 else ()
    return make(size, x.dtype, x.device), make((), x.dtype, x.device)


@rule(aten.nll_loss_backward.default)
def _nll_backward(grad: Any, x: Any, *args: Any) -> Any:
    return make(x.shape, x.dtype, x.device) if x.is_contiguous() else NotImplemented


@rule(aten.log_sigmoid_forward.default)
def _log_sigmoid(x: Any) -> Any:
    """On a CPU both results are contiguous; a GPU needs no buffer for its gradient."""
    if x.device.type == "cpu":
        return make(x.shape, x.dtype, x.device), make(x.shape, x.dtype, x.device)
    return fresh((x,), x.dtype), make((0,), x.dtype, x.device)


@rule(aten.mse_loss.default)
def _mse(x: Any, target: Any, reduction: int = 1) -> Any:
    dtype = promote((x, target))
    return fresh((x, target), dtype, common=dtype) if reduction == 0 else make((), x.dtype, x.device)


@rule(aten.smooth_l1_loss.default)
def _smooth_l1(x: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    return NotImplemented if reduction else _mse(x, target, 0)


@rule(aten.binary_cross_entropy.default)
def _cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Written into memory that was made like the first operand."""
    return NotImplemented if reduction or not same(x.shape, target.shape) else like(x, None, None, None)


@rule(aten.binary_cross_entropy_with_logits.default)
def _crossed(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    """Computed in place of `1 - target`, which is made like the target, so no weight may be larger."""
    for each in (weight, pos_weight):
        whole = None if each is None else broadcast([x, each])
        if whole is not None and not same(whole, x.shape):
            raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(whole)}")
    if not same(x.shape, target.shape) or not (is_float(x.dtype) and is_float(target.dtype)):
        return NotImplemented
    if reduction:
        return make((), x.dtype, x.device) if x.dtype is target.dtype else NotImplemented
    return like(target, None, None, None)


@rule(aten.huber_loss.default)
def _huber(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    """Written into memory that was made like the first operand."""
    if reduction and is_float(x.dtype) and is_float(target.dtype) and broadcast([x, target]) is not None:
        return make((), x.dtype, x.device)
    return NotImplemented if reduction or not same(x.shape, target.shape) else like(x, None, None, None)


@rule(aten.multi_margin_loss.default)
def _margins(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Of one sample that is no batch a number, which the shape function gives a dim."""
    if target.dim():
        return NotImplemented
    func = aten.multi_margin_loss.default
    found = run_on_meta(func, plan_of(func), (x, target, *args), kwargs)
    return make((), found.dtype, found.device)


@rule(aten.multilabel_margin_loss_forward.default)
def _labels_margins(x: Any, target: Any, reduction: int) -> Any:
    """As that, and one number may have a target of one dim, or the other way round."""
    if x.dim() > 1 or target.dim() > 1 or not same(x.shape or (1,), target.shape or (1,)):
        return NotImplemented
    return make((), x.dtype, x.device), make(target.shape, x.dtype, x.device)
