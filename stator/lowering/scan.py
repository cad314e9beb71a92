"""Scans: running sums, products, maxima and minima along a dim, one nest each.

The state has eager's dtype: float64 for float32 where the device says so, float32 for half types. Each element of the
result is the state, rounded; the state itself is not. The position of a running maximum is that of the last element
that equals it. `REASONS` says where PyTorch's kernel is the better one. Neighbours: `reduction.py`, `extern.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.scalar import FLOATS, INTEGERS
from stator.lowering.context import Context
from stator.lowering.extern import extern
from stator.lowering.table import lowers
from stator.lowering.value import DTYPES, Body, Indices, LazyTensor, Spec, compute_dtype, pointwise
from stator.sizes import hint

#: Fewer rows than this are few.
_FEW = 32
#: Rows of this length or more are long.
_LONG = 1 << 15


def _few_long_rows(context: Context, size: tuple[Any, ...], dim: int) -> bool:
    length = hint(size[dim])
    return length >= _LONG and hint(prod(size)) < context.device.min_rows * length


#: Why a scan is left to the outside kernel → whether it is so.
REASONS: dict[str, Callable[[Context, tuple[Any, ...], int], bool]] = {
    "one program for each row leaves the device idle": _few_long_rows,
}


def reason(context: Context, size: tuple[Any, ...], dim: int) -> str | None:
    """Why the scan of a dim stays a call, or None."""
    return next((why for why, holds in REASONS.items() if size and holds(context, size, dim)), None)


def _operand(context: Context, x: LazyTensor, dim: int) -> int:
    """The dim, counted from the front. With few rows, the scheduler decides if the operand is made in their loop."""
    dim %= max(x.rank, 1)
    if x.size and x.place is None and x.base is None and hint(prod(x.size)) < _FEW * hint(x.size[dim]):
        context.realize(x)
    return dim


def _scanned(context: Context, out: Spec, dim: int, kind: str, state: str, body: Body) -> LazyTensor:
    """Scan the values of `body` with a state of dtype `state`, and round to the result's dtype."""
    if not out.size or out.size[dim] == 1 or 0 in out.size:
        # A sum starts at zero, so that -0.0 alone becomes 0.0.
        start = e.const(0.0, state) if kind in ("sum", "logsumexp") and state in FLOATS else None

        def alone(at: Indices) -> Expr:
            value = e.cast(body(at), state)
            return e.cast(value if start is None else e.op("add", value, start), out.dtype)

        return pointwise(out.size, out.dtype, alone, 1)
    return context.scan(out, dim, lambda at: e.cast(e.scan(kind, e.cast(body(at), state)), out.dtype))


def _accumulator(context: Context, dtype: str) -> str:
    return "f64" if dtype == "f32" and context.device.double_scans else compute_dtype(dtype)


def _sum_like(kind: str) -> Callable[..., LazyTensor]:
    def lowering(context: Context, out: Spec, x: LazyTensor, dim: int, *, dtype: Any = None) -> LazyTensor:
        if reason(context, x.size, dim):
            return extern(context, out, x, dim, dtype=dtype)
        # half types are summed in float32 from what they are; a dtype that is asked for is cast to first
        body = x.load if dtype is None else lambda at: e.cast(x.load(at), DTYPES[dtype])
        state = "i64" if out.dtype in INTEGERS or out.dtype == "bool" else _accumulator(context, out.dtype)
        return _scanned(context, out, _operand(context, x, dim), kind, state, body)

    return lowering


lowers("cumsum")(_sum_like("sum"))
lowers("cumprod")(_sum_like("prod"))


@lowers("logcumsumexp")
def logcumsumexp(context: Context, out: Spec, x: LazyTensor, dim: int) -> LazyTensor:
    if reason(context, x.size, dim):
        return extern(context, out, x, dim)
    state = _accumulator(context, out.dtype)
    return _scanned(context, out, _operand(context, x, dim), "logsumexp", state, x.load)


def _extreme(kind: str) -> Callable[..., tuple[LazyTensor, LazyTensor]]:
    def lowering(context: Context, out: tuple[Spec, Spec], x: LazyTensor, dim: int) -> tuple[LazyTensor, LazyTensor]:
        if reason(context, x.size, dim):
            return extern(context, out, x, dim)
        dim = _operand(context, x, dim)
        state = "u8" if x.dtype == "bool" else compute_dtype(x.dtype)
        values = _scanned(context, out[0], dim, kind, state, x.load)

        def moved(at: Any) -> Expr:
            """The position where the extreme is met (again), and 0 elsewhere."""
            one, best = e.cast(x.load(at), state), e.cast(values.load(at), state)
            met = e.op("eq", one, best)
            if state in FLOATS:
                met = e.op("or", met, e.op("isnan", one))
            return e.op("where", met, e.index(at[dim]) if at else e.const(0, "i64"), e.const(0, "i64"))

        return values, _scanned(context, out[1], dim, "max", "i64", moved)

    return lowering


lowers("cummax")(_extreme("max"))
lowers("cummin")(_extreme("min"))
