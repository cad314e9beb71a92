"""Products by weights that lie in pairs of terms, as loops: of matrices, and of images with the channel innermost.

Sums are float32's, and rounded once with the bias, as a library does. How the loop runs is `kernel/pairs.py`'s.
Neighbours: `convolution.py` has images, `product.py` the other products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.base import pairs
from stator.graphs.pairs import MULTIPLY_PAIRS
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import Index
from stator.lowering.context import Context
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Place, Spec, compute_dtype, placed, pointwise
from stator.sizes import Extent
from stator.sizes.strides import contiguous


def product(
    context: Context,
    made: Spec,
    terms: Extent,
    row: Callable[[Indices, Index], Expr],
    packed: LazyTensor,
    bias: LazyTensor | None,
) -> LazyTensor:
    """A result whose columns are dim 1; `row` gives a term of the other factor where all other dims are."""
    wide = compute_dtype(made.dtype)
    context.place(packed)

    def term(at: Indices) -> Expr:
        *rows, column, place = at
        factor = packed.load(pairs.position(column, place))
        return e.op("mul", e.cast(row(tuple(rows), place), wide), e.cast(factor, wide))

    outer, columns, *inner = made.size
    size = (outer, *inner, columns, terms)
    summed = context.reduce(size, [len(size) - 1], wide, lambda at: e.reduce("sum", term(at)), False)
    assert summed.place is not None
    value = finished(made, placed(made.size, Place(summed.place.buffer, made.stride)), bias)
    context.realize(value)  # where no reader is part of the kernel, half as much is in memory as of the sums
    return value


def finished(made: Spec, sums: LazyTensor, bias: LazyTensor | None) -> LazyTensor:
    """Sums, and a bias along dim 1, rounded once."""
    if bias is None and sums.dtype == made.dtype:
        return sums

    def body(at: Indices) -> Expr:
        total = sums.load(at)
        if bias is not None:
            total = e.op("add", total, e.cast(bias.load((at[1],)), sums.dtype))
        return e.cast(total, made.dtype)

    value = pointwise(made.size, made.dtype, body, 3)
    value.stride = made.stride
    return value


@lowers(MULTIPLY_PAIRS)
def matrices(
    context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: LazyTensor | None, packed: LazyTensor
) -> Any:
    rows, made = _by_rows(context, x), out._replace(stride=contiguous(out.size))
    _, terms = x.size
    return product(context, made, terms, lambda at, place: rows.load((*at, place)), packed, bias)


def _by_rows(context: Context, x: LazyTensor) -> LazyTensor:
    """A matrix that lies with its terms side by side, or is copied so."""
    if context.place(x).stride[1] == 1:
        return x
    copied = pointwise(x.size, x.dtype, x.load, 1)
    copied.stride, copied.name = contiguous(x.size), x.name
    context.place(copied)
    return copied
