"""Matrix products: which library computes one, or a loop, and what becomes of a bias.

A call of a library costs one to three microseconds before it multiplies anything, and what reads the product is another
kernel. A loop of ours has the result by then where there are few multiplications, and its reader in the same kernel:
`takes_loop` says where that was measured to be faster (Zen 4, one thread: 60 random products take 0.34 of the time).

ATen gives float32 products to the BLAS it was built with. Where that is MKL and the processor has AVX-512 but is not
Intel's, MKL does not use it, and oneDNN's product (part of the same PyTorch) takes less than half the time: measured
on Zen 5 with two threads, 2.0 to 2.5 times over all shapes and layouts of GPT-2 and ViT, forward and backward, from
about two million multiplications on; below that its set-up costs more than it saves. It adds a bias for free.
The choice depends on the machine alone, so that every process computes the same numbers.

`splits_bias` is the decision whether another `addmm` is a product and a pointwise addition.
Neighbours: `extern.py` (calls), `base/device.py`, by which it is decided.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.dtypes import ITEMSIZE
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.extern import call, extern
from stator.lowering.table import lowers
from stator.lowering.value import (
    HALF,
    Indices,
    LazyTensor,
    Place,
    Spec,
    broadcast,
    pointwise,
    viewed,
)
from stator.sizes import hint
from stator.sizes.strides import contiguous

ONEDNN = "mkldnn._linear_pointwise.default"
#: Multiplications from which on oneDNN's product is the faster one, where it is at all.
ONEDNN_WORK = 2_000_000
#: Results up to which one dot product after the other is, whose readers are computed one by one too.
LOOP_DOTS = 512
#: Columns from which on, and terms up to which, products with all columns of a row at once are.
LOOP_COLUMNS, LOOP_TERMS = 8, 256


def takes_onednn(context: Context, out: Spec, a: LazyTensor) -> bool:
    """Whether oneDNN computes this product."""
    work = hint(out.size[0] * out.size[1] * a.size[1])
    plain = context.device.onednn_products and out.dtype == "f32" and out.stride == contiguous(out.size)
    large = out.size[0] != 1 and work >= ONEDNN_WORK
    return plain and large and bool(torch.backends.mkldnn.enabled)


def takes_loop(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> bool:
    """Whether a kernel of ours computes this product.

    It does so by dot products where the terms of both operands lie side by side, and by rows where columns do; these
    only with a reader, which it is fused with.
    """
    rows, columns, terms = (*out.size, a.size[1])
    known = isinstance(rows, int) and isinstance(columns, int) and isinstance(terms, int)
    limit = context.device.product_work
    if not limit or out.dtype not in ("f32", "f64") or not known or 0 in (rows, columns, terms):
        return False
    if terms == 1:
        return True
    if rows * columns * terms * ITEMSIZE[out.dtype] > limit * ITEMSIZE["f32"]:
        return False
    left, right = context.place(a).stride, context.place(b).stride
    if left[1] == right[0] == 1:
        return rows * columns <= LOOP_DOTS
    return right[1] == 1 and columns >= LOOP_COLUMNS and terms <= LOOP_TERMS and _has_reader(context)


def _has_reader(context: Context) -> bool:
    """Whether a kernel reads the result of the node being lowered, and nothing else does."""
    assert context.node is not None
    uses = context.uses[context.node]
    return uses.extern == 0 and not uses.output and uses.count > 0


def _loop(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> LazyTensor:
    """`a @ b` as a sum of products of elements, or as products alone."""
    for operand in (a, b):
        context.place(operand)  # each element is read many times
    if a.size[1] == 1:
        return pointwise(out.size, out.dtype, lambda at: _term(a, b, at[0], ZERO, at[1]), 1)
    size = (*out.size, a.size[1])
    return context.reduce(size, [2], out.dtype, lambda at: e.reduce("sum", _term(a, b, at[0], at[2], at[1])), False)


def _term(a: LazyTensor, b: LazyTensor, row: Index, step: Index, column: Index) -> Expr:
    return e.op("mul", a.load((row, step)), b.load((step, column)))


@lowers("mm")
def mm(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> Any:
    if takes_loop(context, out, a, b):
        return _loop(context, out, a, b)
    return _linear(context, out, a, b, None) if takes_onednn(context, out, a) else extern(context, out, a, b)


@lowers("addmm")
def addmm(
    context: Context, out: Spec, bias: LazyTensor, a: LazyTensor, b: LazyTensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    if beta != 1 or alpha != 1 or 0 in out.size:
        options = {key: value for key, value in (("beta", beta), ("alpha", alpha)) if value != 1}
        return extern(context, out, bias, a, b, **options)
    if takes_loop(context, out, a, b):
        return _biased(out, _loop(context, out, a, b), bias)
    faster = takes_onednn(context, out, a)
    if faster and bias.size == out.size[1:] and context.place(bias).stride == (1,):
        return _linear(context, out, a, b, bias)
    if not faster and not splits_bias(context, out):
        return extern(context, out, bias, a, b)
    product = _linear(context, out, a, b, None) if faster else call(context, "aten.mm.default", out, (a, b), {})
    return _biased(out, product, bias)


def _biased(out: Spec, product: LazyTensor, bias: LazyTensor) -> LazyTensor:
    def body(at: Indices) -> Expr:
        return e.op("add", product.load(at), e.cast(broadcast(bias, at), out.dtype))

    return pointwise(out.size, out.dtype, body, 2 + bias.weight)


def splits_bias(context: Context, out: Spec) -> bool:
    """Whether the bias of an addmm is better added by the kernel that reads the product.

    A product with bias first copies the bias over the result, a pass over memory that the reader's
    kernel saves. Half types keep addmm: it rounds once, as eager does.
    """
    return out.dtype not in HALF and _has_reader(context)


def _linear(context: Context, out: Spec, a: LazyTensor, b: LazyTensor, bias: LazyTensor | None) -> Any:
    """`a @ b + bias` by oneDNN, which wants the second matrix with its rows and columns exchanged."""
    return call(context, ONEDNN, out, (a, _transposed(b), bias, "none", (), ""), {})


def _transposed(x: LazyTensor) -> LazyTensor:
    def restride(place: Place) -> Place:
        return place._replace(stride=place.stride[::-1])

    return viewed(x, x.size[::-1], lambda at: at[::-1], restride)
