"""Matrix products: which library computes one, and what becomes of a bias.

ATen gives float32 products to the BLAS it was built with. Where that is MKL and the processor has AVX-512 but is not
Intel's, MKL does not use it, and oneDNN's product (part of the same PyTorch) takes less than half the time: measured
on Zen 5 with two threads, 2.0 to 2.5 times over all shapes and layouts of GPT-2 and ViT, forward and backward, from
about two million multiplications on; below that its set-up costs more than it saves. It adds a bias for free.
The choice depends on the machine alone, so that every process computes the same numbers.

`splits_bias` is the decision whether another `addmm` is a product and a pointwise addition.
Neighbours: `extern.py` (calls), `stator.base.processor`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.fx import Node

from stator.base.processor import processor
from stator.loop import expr as e
from stator.loop.expr import Expr
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


@cache
def onednn_is_faster() -> bool:
    """Whether this machine's BLAS leaves half of the processor unused."""
    found = processor()
    blas_is_slow = torch.backends.mkl.is_available() and found.maker != "GenuineIntel" and "avx512f" in found.flags
    return blas_is_slow and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def takes_onednn(context: Context, out: Spec, a: LazyTensor) -> bool:
    """Whether oneDNN computes this product."""
    work = hint(out.size[0] * out.size[1] * a.size[1])
    plain = context.device == "cpu" and out.dtype == "f32" and out.stride == contiguous(out.size)
    large = out.size[0] != 1 and work >= ONEDNN_WORK
    return plain and large and bool(torch.backends.mkldnn.enabled) and onednn_is_faster()


@lowers("mm")
def mm(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> Any:
    return _linear(context, out, a, b, None) if takes_onednn(context, out, a) else extern(context, out, a, b)


@lowers("addmm")
def addmm(
    context: Context, out: Spec, bias: LazyTensor, a: LazyTensor, b: LazyTensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    assert context.node is not None
    if beta != 1 or alpha != 1 or 0 in out.size:
        options = {key: value for key, value in (("beta", beta), ("alpha", alpha)) if value != 1}
        return extern(context, out, bias, a, b, **options)
    faster = takes_onednn(context, out, a)
    if faster and bias.size == out.size[1:] and context.place(bias).stride == (1,):
        return _linear(context, out, a, b, bias)
    if not faster and not splits_bias(context, context.node, out):
        return extern(context, out, bias, a, b)
    product = _linear(context, out, a, b, None) if faster else call(context, "aten.mm.default", out, (a, b), {})

    def body(at: Indices) -> Expr:
        return e.op("add", product.load(at), e.cast(broadcast(bias, at), out.dtype))

    return pointwise(out.size, out.dtype, body, 2 + bias.weight)


def splits_bias(context: Context, node: Node, out: Spec) -> bool:
    """Whether the bias of an addmm is better added by the kernel that reads the product.

    A product with bias first copies the bias over the result, a pass over memory that the reader's
    kernel saves. Half types keep addmm: it rounds once, as eager does.
    """
    uses = context.uses[node]
    return out.dtype not in HALF and uses.extern == 0 and not uses.output and uses.count > 0


def _linear(context: Context, out: Spec, a: LazyTensor, b: LazyTensor, bias: LazyTensor | None) -> Any:
    """`a @ b + bias` by oneDNN, which wants the second matrix with its rows and columns exchanged."""
    return call(context, ONEDNN, out, (a, _transposed(b), bias, "none", (), ""), {})


def _transposed(x: LazyTensor) -> LazyTensor:
    def restride(place: Place) -> Place:
        return place._replace(stride=place.stride[::-1])

    return viewed(x, x.size[::-1], lambda at: at[::-1], restride)
