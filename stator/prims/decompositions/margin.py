"""Margin losses of one or several right classes, and their gradients.

The scores of classes are compared in pairs, which are dims here; input without a batch is a batch of one. Eager's loops
pass over a pair that is not too near, so nothing is multiplied by its zero, and one whose difference is NaN is none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import iota, reshaped
from stator.prims.decompositions.loss import MEAN, NONE
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose


def _rows(x: Tensor) -> Tensor:
    """As (batch, classes)."""
    return x if x.dim() == 2 else p.view(p.clone(x), [1, *(x.shape or (1,))])


def _reduced(losses: Tensor, x: Tensor, reduction: int) -> Tensor:
    """One loss for each row, or their mean or sum, in the type of `x`."""
    if reduction == NONE:
        value = losses if x.dim() == 2 else p.view(losses, [])
    else:
        value = p.mean(losses, [0]) if reduction == MEAN else p.sum_(losses, [0])
    return cast(value, x.dtype) if value.dtype is not x.dtype else p.clone(value)


def _share(grad: Tensor, rows: Tensor, reduction: int) -> Tensor:
    """The gradient that each pair of classes of a row receives, as a column."""
    grad = cast(grad, rows.dtype)
    column = p.view(p.clone(grad), [-1, 1]) if grad.dim() else p.view(p.clone(grad), [1, 1])
    return p.div(column, rows.shape[1] * (rows.shape[0] if reduction == MEAN else 1))


def _given_back(value: Tensor, x: Tensor) -> Tensor:
    """The gradient in the dtype and shape of `x`."""
    out = cast(value, x.dtype)
    return reshaped(out, list(x.shape))


# -- one right class -------------------------------------------------------------------------------


class _Margins(NamedTuple):
    rows: Tensor
    right: Tensor  #: whether a class is the right one
    near: Tensor  #: whether a class is another one, and too near to it
    margins: Tensor  #: how far, 0 where it is not
    weights: Tensor | None


def _margins(x: Tensor, target: Tensor, margin: float, weight: Tensor | None) -> _Margins:
    rows = cast(_rows(x), compute_type(x.dtype))
    column = p.view(p.clone(target), [-1, 1])
    chosen = p.gather(rows, 1, column)
    right = p.eq(iota(rows.shape[1], x.device), column)
    apart = p.add(p.sub(rows, chosen), margin)
    weights = None if weight is None else cast(p.index(weight, [column]), rows.dtype)
    near = p.logical_and(p.gt(apart, 0.0), p.logical_not(right))
    return _Margins(rows, right, near, p.where(near, apart, 0.0), weights)


@decompose("multi_margin_loss")
def multi_margin_loss(
    x: Tensor, target: Tensor, power: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    if x.numel() == 0:
        return NotImplemented
    found = _margins(x, target, margin, weight)
    terms = found.margins if power == 1 else p.mul(found.margins, found.margins)
    if found.weights is not None:
        terms = p.where(found.near, p.mul(terms, found.weights), 0.0)
    return _reduced(p.div(p.sum_(terms, [1]), found.rows.shape[1]), x, reduction)


@decompose("multi_margin_loss_backward")
def multi_margin_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    power: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    if x.numel() == 0:
        return NotImplemented
    found = _margins(x, target, margin, weight)
    share = _share(grad, found.rows, reduction)
    if found.weights is not None:
        share = p.mul(share, found.weights)
    slope = p.where(found.near, share if power == 1 else p.mul(p.mul(found.margins, 2.0), share), 0.0)
    return _given_back(p.where(found.right, p.neg(p.sum_(slope, [1], True)), slope), x)


# -- several right classes -------------------------------------------------------------------------


class _Pairs(NamedTuple):
    rows: Tensor
    listed: Tensor  #: [row, place in the list, class]: whether the list has that class at that place
    margins: Tensor  #: [row, place in the list, class]: how far a class is too near to the one that is listed


def _pairs(x: Tensor, target: Tensor, is_target: Tensor | None = None) -> tuple[_Pairs, Tensor]:
    """The pairs, and which classes are right; a list ends where it is negative."""
    rows, lists = cast(_rows(x), compute_type(x.dtype)), _rows(target)
    classes = rows.shape[1]
    ends = p.to_copy(p.lt(lists, 0), dtype=torch.int64)
    number = iota(classes, x.device)
    end = p.where(p.any_(ends, [1], True), p.argmax(ends, 1, True), classes)
    counts = p.lt(number, end)
    listed = p.logical_and(p.unsqueeze(counts, 2), p.eq(p.unsqueeze(lists, 2), number))
    right = p.any_(listed, [1]) if is_target is None else p.ne(_rows(is_target), 0)
    chosen = p.gather(rows, 1, p.where(counts, lists, 0))
    apart = p.add(p.sub(p.unsqueeze(rows, 1), p.unsqueeze(chosen, 2)), 1)
    pairs = p.logical_and(p.unsqueeze(counts, 2), p.logical_not(p.unsqueeze(right, 1)))
    return _Pairs(rows, listed, p.where(p.logical_and(pairs, p.gt(apart, 0.0)), apart, 0.0)), right


@decompose("multilabel_margin_loss_forward")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        return NotImplemented
    found, right = _pairs(x, target)
    loss = _reduced(p.div(p.sum_(found.margins, [1, 2]), found.rows.shape[1]), x, reduction)
    return loss, p.view(p.to_copy(right, dtype=x.dtype), list(target.shape))


@decompose("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    if x.numel() == 0:
        return NotImplemented
    found, _ = _pairs(x, target, is_target)
    near = p.to_copy(p.gt(found.margins, 0.0), dtype=found.rows.dtype)
    taken = p.sum_(p.where(found.listed, p.sum_(near, [2], True), 0.0), [1])
    slope = p.sub(p.sum_(near, [1]), taken)
    return _given_back(p.mul(slope, _share(grad, found.rows, reduction)), x)
