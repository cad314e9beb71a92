"""Reductions: one nest each, accumulated in float32 for half types and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO
from stator.loop.scalar import FLOATS
from stator.lowering.context import Context
from stator.lowering.table import lowers
from stator.lowering.value import DTYPES, Indices, LazyTensor, Spec, compute_dtype, pointwise, viewed

Dims = int | Sequence[int] | None


def reduced_dims(x: LazyTensor, dim: Dims) -> list[int]:
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(x.rank))
    return [d % max(x.rank, 1) for d in ((dim,) if isinstance(dim, int) else dim)]


def _reduce(
    context: Context,
    out: Spec,
    x: LazyTensor,
    dim: Dims,
    keep: bool,
    kind: str,
    dtype: str,
    finish: Callable[[Expr], Expr] | None = None,
) -> LazyTensor:
    """Reduce in `dtype`, apply `finish`, cast to the result's dtype."""
    dims = reduced_dims(x, dim)

    def final(value: Expr) -> Expr:
        return e.cast(value if finish is None else finish(value), out.dtype)

    if prod([x.size[d] for d in dims if d < x.rank]) == 1:
        return _nothing_to_reduce(out, x, dims, kind, dtype, final)
    return context.reduce(x.size, dims, out.dtype, lambda at: final(e.reduce(kind, e.cast(x.load(at), dtype))), keep)


def _asked(x: LazyTensor, dtype: Any) -> LazyTensor:
    """The value in the dtype that is asked for: sums and products are of what that dtype holds, means are not."""
    if dtype is None:
        return x
    kind = DTYPES[dtype]
    return pointwise(x.size, kind, lambda at: e.cast(x.load(at), kind), x.weight + 1)


def _nothing_to_reduce(
    out: Spec, x: LazyTensor, dims: list[int], kind: str, dtype: str, final: Callable[[Expr], Expr]
) -> LazyTensor:
    """The dims have one element: the value itself, reshaped. A sum starts at zero, so that -0.0 becomes 0.0."""

    def body(at: Indices) -> Expr:
        if kind.startswith("arg"):
            return final(e.const(0, "i64"))
        value = e.cast(x.load(at), dtype)
        return final(e.op("add", value, e.const(0.0, dtype)) if kind == "sum" and dtype in FLOATS else value)

    whole = pointwise(x.size, out.dtype, body, x.weight + 1)
    if len(out.size) == x.rank:
        return whole
    kept = [d for d in range(x.rank) if d not in dims]

    def remap(at: Indices) -> Indices:
        rest = iter(at)
        return tuple([next(rest) if d in kept else ZERO for d in range(x.rank)])

    return viewed(whole, out.size, remap, lambda place: place._replace(stride=tuple([place.stride[d] for d in kept])))


def _accumulator(out: Spec, dtype: Any) -> str:
    return compute_dtype(DTYPES[dtype] if dtype is not None else out.dtype)


@lowers("sum.dim_IntList")
def sum_(context: Context, out: Spec, x: LazyTensor, dim: Dims, keep: bool = False, *, dtype: Any = None) -> LazyTensor:
    kind = "any" if out.dtype == "bool" else "sum"
    return _reduce(context, out, _asked(x, dtype), dim, keep, kind, _accumulator(out, dtype))


@lowers("mean.dim")
def mean(context: Context, out: Spec, x: LazyTensor, dim: Dims, keep: bool = False, *, dtype: Any = None) -> LazyTensor:
    wide = _accumulator(out, dtype)
    count = e.number(prod([x.size[d] for d in reduced_dims(x, dim)]) if x.rank else 1, wide)
    return _reduce(context, out, x, dim, keep, "sum", wide, lambda total: e.op("div", total, count))


@lowers("prod.dim_int")
def prod_(context: Context, out: Spec, x: LazyTensor, dim: int, keep: bool = False, *, dtype: Any = None) -> LazyTensor:
    kind = "all" if out.dtype == "bool" else "prod"
    return _reduce(context, out, _asked(x, dtype), dim, keep, kind, _accumulator(out, dtype))


@lowers("amax")
def amax(context: Context, out: Spec, x: LazyTensor, dim: Dims = (), keep: bool = False) -> LazyTensor:
    kind = "any" if out.dtype == "bool" else "max"
    return _reduce(context, out, x, dim, keep, kind, compute_dtype(out.dtype))


@lowers("amin")
def amin(context: Context, out: Spec, x: LazyTensor, dim: Dims = (), keep: bool = False) -> LazyTensor:
    kind = "all" if out.dtype == "bool" else "min"
    return _reduce(context, out, x, dim, keep, kind, compute_dtype(out.dtype))


@lowers("any.dims")
def any_(context: Context, out: Spec, x: LazyTensor, dim: Dims = None, keep: bool = False) -> LazyTensor:
    return _reduce(context, out, x, dim, keep, "any", "bool")


@lowers("argmax")
def argmax(context: Context, out: Spec, x: LazyTensor, dim: int | None = None, keep: bool = False) -> LazyTensor:
    return _reduce(context, out, x, dim, keep, "argmax", compute_dtype(x.dtype))


@lowers("argmin")
def argmin(context: Context, out: Spec, x: LazyTensor, dim: int | None = None, keep: bool = False) -> LazyTensor:
    return _reduce(context, out, x, dim, keep, "argmin", compute_dtype(x.dtype))
