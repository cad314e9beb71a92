"""Products: forms of matrix multiplication that reduce to `mm`, `bmm` and `addmm` plus pointwise parts."""

from __future__ import annotations

import torch
from torch import Tensor

from stator.fake.layout import promote
from stator.prims import names as p
from stator.prims.decompositions.shape import roll
from stator.prims.table import cast, decompose, is_one


def _scaled(value: Tensor, factor: float) -> Tensor:
    if is_one(factor):
        return value
    whole = not (value.is_floating_point() or value.is_complex() or isinstance(factor, bool))
    return p.mul(value, int(factor) if whole else factor)


@decompose("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = _scaled(p.bmm(a, b), alpha)
    return product if beta == 0 else p.add(product, _scaled(x, beta))


@decompose("mv")
def mv(a: Tensor, x: Tensor) -> Tensor:
    return p.squeeze(p.mm(a, p.unsqueeze(x, 1)), [1])


@decompose("addmv")
def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = _scaled(mv(a, b), alpha)
    return product if beta == 0 else p.add(product, _scaled(x, beta))


@decompose("dot", "vdot")
def dot(a: Tensor, b: Tensor) -> Tensor:
    if a.is_complex():
        return NotImplemented
    return p.view(p.mm(p.unsqueeze(a, 0), p.unsqueeze(b, 1)), [])


@decompose("addr")
def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if x.dtype is a.dtype is b.dtype is torch.bool:  # the numbers are truth values then
        beta, alpha = bool(beta), bool(alpha)
    product = _scaled(p.mul(p.unsqueeze(a, 1), b), alpha)
    return product if beta == 0 else p.add(_scaled(x, beta), product)


@decompose("linalg_cross")
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Each component from the two that follow it."""
    if a.is_complex() or b.is_complex():
        return NotImplemented
    dtype = promote((a, b))
    a, b = cast(a, dtype), cast(b, dtype)
    return p.sub(p.mul(roll(a, [-1], [dim]), roll(b, [-2], [dim])), p.mul(roll(a, [-2], [dim]), roll(b, [-1], [dim])))


@decompose("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Met only where the dispatcher keeps it whole; more than two dims are folded into rows."""
    if x.dim() < 2 or not x.is_contiguous():
        return NotImplemented
    rows = x if x.dim() == 2 else p.view(x, [-1, x.shape[-1]])
    product = p.mm(rows, p.permute(weight, [1, 0]))
    value = product if bias is None else p.add(product, bias)
    return value if x.dim() == 2 else p.view(value, [*x.shape[:-1], weight.shape[0]])
