"""Creation: constants and ranges, which are expressions and take no memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.scalar import FLOATS
from stator.lowering.context import Context
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Spec, pointwise
from stator.sizes import Extent, Size


def constant(out: Spec, value: float) -> LazyTensor:
    """The same number everywhere."""
    filled = e.number(value, out.dtype)
    return pointwise(out.size, out.dtype, lambda at: filled, 1)


@lowers("full")
def full(context: Context, out: Spec, size: Sequence[int], value: float, **_: Any) -> LazyTensor:
    return constant(out, value)


@lowers("full_like")
def full_like(context: Context, out: Spec, x: LazyTensor, value: float, **_: Any) -> LazyTensor:
    return constant(out, value)


@lowers("arange.start_step")
def arange(context: Context, out: Spec, start: float, end: float, step: float = 1, **_: Any) -> LazyTensor:
    """Whole numbers stay in index arithmetic; others are computed in float64, as eager does.

    A range of integers has whole ends and steps, whatever it was given.
    """
    first, stride = _whole(start), _whole(step)
    if out.dtype not in FLOATS or (start == first and step == stride):
        return pointwise(out.size, out.dtype, lambda at: e.cast(e.index(at[0] * stride + first), out.dtype), 1)

    def body(at: Indices) -> Expr:
        steps = e.op("mul", e.cast(e.index(at[0]), "f64"), e.number(step, "f64"))
        value = e.op("add", steps, e.number(start, "f64"))
        return e.cast(value, out.dtype)

    return pointwise(out.size, out.dtype, body, 3)


def _whole(number: Any) -> Extent:
    return number if isinstance(number, Size) else int(number)
