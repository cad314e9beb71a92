"""Matrix products: which library computes one, or a loop, and what becomes of a bias.

A call of a library costs a few microseconds before it multiplies anything, brings a weight into an order of its own,
and leaves what reads the product to another pass. So products of few multiplications, few rows or few terms are loops,
with their readers in the same kernel: by rule (`takes_loop`) where that was measured to be clearly faster
(docs/benchmarks.md), of bfloat16 more of them, and under the option `autotune` where it was on this machine
(`stator/tuning.py`).

Where PyTorch's BLAS is MKL and the processor has AVX-512 but is not Intel's, MKL does not use it, and oneDNN's product
takes less than half the time from about two million multiplications on (Zen 5, two threads). It adds a bias for free.
The choice depends on the machine alone, so that every process computes the same numbers.

`splits_bias` is the decision whether another `addmm` is a product and a pointwise addition.
Neighbours: `extern.py` (calls), `base/device.py`, by which it is decided.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO
from stator.lowering import matmul
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
    compute_dtype,
    pointwise,
    viewed,
)
from stator.sizes import Extent, hint
from stator.sizes.strides import contiguous

ONEDNN = "mkldnn._linear_pointwise.default"
#: Multiplications from which on oneDNN's product is the faster one, where it is at all.
ONEDNN_WORK = 2_000_000
#: Results up to which one dot product after the other is, whose readers are computed one by one too.
LOOP_DOTS = 512
#: Columns from which on, and terms up to which, products with all columns of a row at once are.
LOOP_COLUMNS, LOOP_TERMS = 8, 256
#: Rows between which dot products are ours however many there are: a library first brings the weight, all that takes
#: time, into an order of its own, and reads it several times.
SKINNY = 3, 16
#: Rows up to which, and elements of a factor up to which, each product of a batch is.
FEW_ROWS, SMALL = 64, 1 << 13
#: Rows from which on, and terms and columns up to which, a product with a reader is: a pass over results costs much.
TALL, NARROW = 512, 128
#: Multiplications, and results where each is a dot product, up to which products of bfloat16 are: oneDNN takes some
#: 25 µs before it multiplies any.
HALF_WORK, HALF_DOTS = 1 << 20, 4096
#: In the `meta` of a node: which way was the faster one, where that was measured (`stator/tuning.py`).
TAKES_LOOP = "takes_loop"


def takes_onednn(context: Context, out: Spec, a: LazyTensor) -> bool:
    """Whether oneDNN computes this product."""
    work = hint(out.size[0] * out.size[1] * a.size[1])
    plain = context.device.onednn_products and out.dtype == "f32" and out.stride == contiguous(out.size)
    large = out.size[0] != 1 and work >= ONEDNN_WORK
    return plain and large and bool(torch.backends.mkldnn.enabled)


def may_loop(node: Node, device: Device) -> bool:
    """Whether a loop may compute a product: of float32, float64 or bfloat16, of sizes that are known and not 0.

    How many products a batch has need not be known: what each of them takes decides. Tiles are of `matmul.DTYPES`, and
    of any sizes that are not known to be 0.
    """
    values = [node.meta["val"], *[arg.meta["val"] for arg in node.args[-2:]]]  # type: ignore[union-attr]
    dtypes = matmul.DTYPES if device.tile_products else (torch.float32, torch.float64, torch.bfloat16)
    wide: bool = values[0].dtype in dtypes
    known = device.tile_products or all(type(size) is int for value in values for size in value.shape[-2:])
    known = known and all(type(size) is not int or size for value in values for size in value.shape)
    plain: bool = (node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)) == (1, 1)
    return (device.product_work > 0 or device.tile_products) and wide and known and plain


def takes_loop(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> bool:
    """Whether a kernel of ours computes this product: as was measured, or by rule."""
    assert context.node is not None
    if not may_loop(context.node, context.device):
        return False
    if (measured := context.node.meta.get(TAKES_LOOP)) is not None:
        return bool(measured)
    *batches, rows, columns = out.size
    terms = a.size[-1]
    if _is_for_tiles(context, out, a):
        return matmul.wins(context, out, a, b)
    if any(type(size) is not int for size in (rows, columns, terms)):
        return False
    if terms == 1:
        return True
    left, right = context.place(a).stride, context.place(b).stride
    dots = left[-1] == right[-2] == 1
    if not dots and right[-1] != 1:
        return False
    if out.dtype in HALF:
        few = rows * columns <= HALF_DOTS if dots else columns >= LOOP_COLUMNS
        return context.device.product_blocks and not batches and few and rows * columns * terms <= HALF_WORK
    small = rows * columns * terms * ITEMSIZE[out.dtype] <= context.device.product_work * ITEMSIZE["f32"]
    if small and not batches:
        return rows * columns <= LOOP_DOTS if dots else _is_wide(columns, terms) and _has_reader(context)
    if not context.device.product_blocks:
        return False
    if batches:
        return rows <= FEW_ROWS and columns * terms <= SMALL and rows * terms <= SMALL
    if dots and SKINNY[0] <= rows <= SKINNY[1]:
        return True
    return rows >= TALL and terms <= NARROW and columns <= NARROW and _has_reader(context)


def _is_for_tiles(context: Context, out: Spec, a: LazyTensor) -> bool:
    """Whether a kernel of ours has tiles of the product; of so few floats most would be empty, and loops take those."""
    if not context.device.tile_products or out.dtype in HALF:
        return context.device.tile_products
    work = math.prod(map(hint, (*out.size, a.size[-1]))) * ITEMSIZE[out.dtype]
    return work > context.device.product_work * ITEMSIZE["f32"]


def _is_wide(columns: Extent, terms: Extent) -> bool:
    return columns >= LOOP_COLUMNS and terms <= LOOP_TERMS


def _has_reader(context: Context) -> bool:
    """Whether a kernel reads the result of the node being lowered, and nothing else does."""
    assert context.node is not None
    uses = context.uses[context.node]
    return uses.extern == 0 and not uses.output and uses.count > 0


def _loop(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> LazyTensor:
    """`a @ b` as a sum of products of elements, or as products alone, in the dtype that it is computed in."""
    for operand in (a, b):
        context.place(operand)  # each element is read many times
    wide = compute_dtype(out.dtype)
    if a.size[-1] == 1:
        return pointwise(out.size, wide, lambda at: _term(a, b, (*at, ZERO), wide), 1)
    size = (*out.size, a.size[-1])
    return context.reduce(size, [len(size) - 1], wide, lambda at: e.reduce("sum", _term(a, b, at, wide)), False)


def _term(a: LazyTensor, b: LazyTensor, at: Indices, wide: str) -> Expr:
    """The product of two elements, at a batch if there are several, a row, a column and a term."""
    *batch, row, column, term = at
    return e.op("mul", e.cast(a.load((*batch, row, term)), wide), e.cast(b.load((*batch, term, column)), wide))


def _computed(context: Context, out: Spec, a: LazyTensor, b: LazyTensor, bias: LazyTensor | None = None) -> LazyTensor:
    """A product by a kernel of ours."""
    if _is_for_tiles(context, out, a):
        return matmul.tiles(context, out, a, b, bias)
    product = _loop(context, out, a, b)
    return _rounded(out, product) if bias is None else _biased(out, product, bias)


def _rounded(out: Spec, product: LazyTensor) -> LazyTensor:
    """A product as the program has it."""
    if product.dtype == out.dtype:
        return product
    return pointwise(out.size, out.dtype, lambda at: e.cast(product.load(at), out.dtype), product.weight + 1)


@lowers("mm")
def mm(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> Any:
    if takes_loop(context, out, a, b):
        return _computed(context, out, a, b)
    return _linear(context, out, a, b, None) if takes_onednn(context, out, a) else extern(context, out, a, b)


@lowers("bmm")
def bmm(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> Any:
    if takes_loop(context, out, a, b):
        return _computed(context, out, a, b)
    return extern(context, out, a, b)


@lowers("addmm")
def addmm(
    context: Context, out: Spec, bias: LazyTensor, a: LazyTensor, b: LazyTensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    if beta != 1 or alpha != 1 or 0 in out.size:
        options = {key: value for key, value in (("beta", beta), ("alpha", alpha)) if value != 1}
        return extern(context, out, bias, a, b, **options)
    if takes_loop(context, out, a, b):
        return _computed(context, out, a, b, bias)
    faster = takes_onednn(context, out, a)
    if faster and bias.size == out.size[1:] and context.place(bias).stride == (1,):
        return _linear(context, out, a, b, bias)
    if not faster and not splits_bias(context, out):
        return extern(context, out, bias, a, b)
    product = _linear(context, out, a, b, None) if faster else call(context, "aten.mm.default", out, (a, b), {})
    return _biased(out, product, bias)


def _biased(out: Spec, product: LazyTensor, bias: LazyTensor) -> LazyTensor:
    def body(at: Indices) -> Expr:
        total = e.op("add", product.load(at), e.cast(broadcast(bias, at), product.dtype))
        return e.cast(total, out.dtype)

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
