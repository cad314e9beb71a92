"""Products: forms of matrix multiplication that reduce to `mm`, `bmm` and `addmm` plus pointwise parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stator.fake.layout import promote
from stator.prims import names as p
from stator.prims.decompositions.complex import sum_of
from stator.prims.decompositions.layout import contiguous, reshaped
from stator.prims.decompositions.shape import roll
from stator.prims.dtypes import HALF_TYPES, cast, is_one
from stator.prims.table import decompose


def _scaled(value: Tensor, factor: float) -> Tensor:
    if is_one(factor):
        return value
    whole = not (value.is_floating_point() or value.is_complex() or isinstance(factor, bool))
    return p.mul(value, int(factor) if whole else factor)


@decompose("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """In half types the product is not rounded before `x` is added: that stays one call."""
    if a.dtype in HALF_TYPES:
        return NotImplemented
    product = _scaled(p.bmm(a, b), alpha)
    return product if beta == 0 else p.add(product, _scaled(x, beta))


@decompose("addbmm")
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum of the products of a batch is one product. An empty batch may be of another dtype."""
    batch, rows, inner = a.shape
    wide = reshaped(p.permute(a, [1, 0, 2]), [rows, batch * inner])
    factors = wide, p.view(contiguous(b), [batch * inner, b.shape[2]])
    product = _scaled(p.mm(*[cast(factor, x.dtype) for factor in factors]), alpha)
    return product if beta == 0 else p.add(product, _scaled(x, beta))


@decompose("mv")
def mv(a: Tensor, x: Tensor) -> Tensor:
    return p.squeeze(p.mm(a, p.unsqueeze(x, 1)), [1])


@decompose("addmv")
def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Rounded once in half types, as `baddbmm`. Of an empty matrix eager gives the bias, of the bias's own size."""
    if 0 in a.shape and beta != 0:
        return p.clone(x) if is_one(beta) else _scaled(x, beta)
    if a.dtype in HALF_TYPES:
        return NotImplemented
    product = _scaled(mv(a, b), alpha)
    return product if beta == 0 else p.add(product, _scaled(x, beta))


@decompose("dot", "vdot")
def dot(a: Tensor, b: Tensor) -> Tensor:
    if a.is_complex():
        return NotImplemented
    return p.view(p.mm(p.unsqueeze(a, 0), p.unsqueeze(b, 1)), [])


@decompose("addr", also_complex=True)
def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Eager rounds the numbers to the dtype of the result, and every step; a complex 1 turns infinities to NaN."""
    dtype = promote((x, a, b))
    x, a, b = cast(x, dtype), cast(a, dtype), cast(b, dtype)

    def scaled(value: Tensor, factor: float) -> Tensor:
        if is_one(factor) and not dtype.is_complex:
            return value
        return p.mul(value, p.full([], factor, dtype=dtype, device=x.device))

    product = p.mul(p.unsqueeze(scaled(a, alpha), 1), b)
    return product if beta == 0 else sum_of(scaled(x, beta), product)


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


@decompose("_trilinear")
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    absent_a: Sequence[int],
    absent_b: Sequence[int],
    absent_c: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """The product of three tensors, each without some of the dims, summed over some: two products of batches."""
    rank = a.dim() + len(absent_a)
    dims_a, dims_b, dims_c = [set(range(rank)) - set(absent) for absent in (absent_a, absent_b, absent_c)]
    if not set(summed) <= dims_a | dims_b | dims_c or dims_a | dims_b | dims_c != set(range(rank)):
        return NotImplemented
    a, b, c = _spread(a, absent_a), _spread(b, absent_b), _spread(c, absent_c)
    if 0 in (*a.shape, *b.shape, *c.shape):
        extents = torch.broadcast_shapes(a.shape, b.shape, c.shape)
        kept = [extents[d] for d in range(rank) if d not in summed]
        return p.full(kept, 0, dtype=promote((a, b, c)), device=a.device)
    product = _contracted(a, b, dims_a, dims_b, set(summed) - dims_c)
    rest = (dims_a | dims_b) - (set(summed) - dims_c)
    value = _contracted(product, c, rest, dims_c, set(summed) & dims_c)
    return p.squeeze(value, sorted(summed)) if summed else value


def _spread(x: Tensor, absent: Sequence[int]) -> Tensor:
    for dim in sorted(absent):
        x = p.unsqueeze(x, dim)
    return x


def _contracted(a: Tensor, b: Tensor, dims_a: set[int], dims_b: set[int], summed: set[int]) -> Tensor:
    """a * b, summed over some dims, which stay with size 1; the dims that a tensor lacks have size 1 in it."""
    for alone in sorted(summed - dims_b):
        a = p.sum_(a, [alone], True)
    for alone in sorted(summed - dims_a):
        b = p.sum_(b, [alone], True)
    inner = sorted(summed & dims_a & dims_b)
    if not inner:
        return p.mul(a, b)
    both = sorted((dims_a & dims_b) - summed)
    left = [d for d in range(a.dim()) if d not in both and d not in inner and d in dims_a]
    right = [d for d in range(a.dim()) if d not in both and d not in inner and d not in left]
    order = [*both, *left, *right, *inner]
    size_a, size_b = [a.shape[d] for d in order], [b.shape[d] for d in order]
    batch, rows, k = len(both), len(left), len(inner)
    n = math.prod(size_a[:batch])
    depth = math.prod(size_a[len(order) - k :])
    wide = reshaped(p.permute(a, order), [n, math.prod(size_a[batch : batch + rows]), depth])
    tall = reshaped(p.permute(b, order), [n, math.prod(size_b[batch + rows : len(order) - k]), depth])
    product = p.bmm(wide, p.permute(tall, [0, 2, 1]))
    size = [*size_a[: batch + rows], *size_b[batch + rows : len(order) - k], *[1] * k]
    return p.permute(p.view(product, size), [order.index(d) for d in range(a.dim())])
