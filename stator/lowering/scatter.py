"""Scatters: writes at loaded positions, as a copy of the destination and a nest in one of `loop.collision.MODES`.

In loops the order of writes to one address is eager's, where iterations that meet go in order. Elsewhere it is open, as
it is there in eager; what combines with memory is a nest where the device does so atomically, maybe with other numbers
that stand for the elements meanwhile (`cell`), and ATen's kernel elsewhere; it does as well what depends on that order
where the program asks for deterministic algorithms, or says that it cannot. A destination that nobody else reads, in
memory that is the graph's own, is not copied: `spent` says which.
Neighbours: `indexing.py` (reads at loaded positions), `loop/collision.py` (which loops may be shared among threads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.fusion import FEW
from stator.loop.index import ZERO, Index
from stator.loop.nest import Nest
from stator.loop.scalar import FLOATS
from stator.lowering.context import Context, loop_axes
from stator.lowering.extern import extern
from stator.lowering.indexing import Selection, position_in
from stator.lowering.table import LOWERINGS, lowers
from stator.lowering.value import (
    Body,
    Indices,
    LazyTensor,
    Place,
    Size,
    Spec,
    broadcast,
    compute_dtype,
    placed,
    pointwise,
)
from stator.prims.set import PRIMITIVES
from stator.sizes import hint

#: What ATen's reductions are as modes of stores.
REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}

Target = Callable[[Indices], Indices]


class Cell(NamedTuple):
    """What stands in memory for an element while writes are combined: how, and the way there and back."""

    dtype: str
    mode: str
    into: Callable[[Expr], Expr]
    back: Callable[[Expr], Expr]


def cell(context: Context, dtype: str, wide: str, mode: str) -> Cell | None:
    """How the device combines elements of `dtype`, computed in `wide`, where many iterations may meet at one address.

    Sums wrap around in wider integers as they do in narrow ones; truth is 1, so its sum is the greatest.
    """
    atomics = context.device.atomics
    if atomics is not None and _is_ordered(dtype, mode):
        return None
    if atomics is None or mode == "put" or wide in atomics.get(mode, ()):
        return _plain(dtype, wide, mode)
    if dtype == "bool":
        return _plain(dtype, "i32", {"add": "maximum", "mul": "minimum"}.get(mode, mode))
    if mode == "mul":
        return None
    return _ordered(dtype, mode) if dtype in FLOATS else _plain(dtype, "i32", mode)


def _is_ordered(dtype: str, mode: str) -> bool:
    """Whether results depend on the order of writes to one address, and the program wants the same ones every time."""
    depends = mode == "put" or (mode in ("add", "mul") and dtype in FLOATS)
    return depends and torch.are_deterministic_algorithms_enabled()


def _plain(dtype: str, wide: str, mode: str) -> Cell:
    return Cell(wide, mode, lambda value: e.cast(value, wide), lambda value: e.cast(value, dtype))


def _ordered(dtype: str, mode: str) -> Cell:
    """Floats as integers in the same order: their bits, turned round where negative, and NaN beyond all others."""
    wide, integer, bits = ("f64", "i64", 64) if dtype == "f64" else ("f32", "i32", 32)
    highest = (1 << (bits - 1)) - 1
    beyond = e.const(highest if mode == "maximum" else -highest - 1, integer)

    def turned(number: Expr) -> Expr:
        negative = e.op("lt", number, e.const(0, integer))
        return e.op("where", negative, e.op("xor", number, e.const(highest, integer)), number)

    def into(value: Expr) -> Expr:
        value = e.cast(value, wide)
        return e.op("where", e.op("isnan", value), beyond, turned(e.bitcast(value, integer)))

    return Cell(integer, mode, into, lambda number: e.cast(e.bitcast(turned(number), wide), dtype))


def spent(context: Context, out: Spec, x: LazyTensor) -> Place | None:
    """Where the node's first argument lies, if that is the result of a call and nothing but this node reads it.

    Its buffer may have other dims than it.
    """
    assert context.node is not None
    source: Any = context.node.args[0]
    primitive = PRIMITIVES.get(source.target)
    owned = LOWERINGS.get(source.target) in _SCATTERS or (primitive is not None and primitive.kind == "extern")
    if not owned or x.place is None or x.place.stride != out.stride or context.uses[source].count > 1:
        return None
    return x.place if x.place.offset == 0 else None


def _realize_small(context: Context, source: LazyTensor, out: Size) -> None:
    """Put a source that is far smaller than the destination in memory first, so that its operands can be freed before.

    Where this gains nothing, fusion makes both one kernel again.
    """
    if source.place is None and source.weight > 1 and hint(prod(source.size)) * FEW <= hint(prod(out)):
        context.realize(source)


def _scattered(
    context: Context, out: Spec, x: LazyTensor, size: Size, value: Body, target: Target, mode: str, dtype: str = ""
) -> LazyTensor | None:
    """For every index of `size`, the value goes to the element `target(index)`; None is for ATen to do.

    It is done in `dtype`, and rounded at the end if that is not the result's.
    """
    dtype = dtype or out.dtype
    if 0 in size:
        return pointwise(out.size, out.dtype, x.load, x.weight)
    kept = cell(context, out.dtype, dtype, mode)
    if 0 in out.size or kept is None:
        return None
    place = spent(context, out, x) if kept.dtype == out.dtype else None
    if place is None:
        buffer = context.buffer(out.size, out.stride, kept.dtype)
        place = Place(buffer, buffer.stride)
        context.write(buffer, pointwise(out.size, kept.dtype, lambda at: kept.into(x.load(at)), x.weight))
    axes, at = loop_axes(size, tuple(range(len(size), 0, -1)))
    position = _flat(target(at), place.stride)
    context.nodes.append(Nest(place.buffer, axes, (), kept.into(value(at)), position, kept.mode))
    whole = placed(out.size, place)
    if kept.dtype == out.dtype:
        return whole
    return pointwise(out.size, out.dtype, lambda at: kept.back(whole.load(at)), 2)


def _flat(at: Indices, stride: Size) -> Index:
    """A tensor without dims has one element, at which positions are checked all the same."""
    position = ZERO
    for index, step in zip(at, stride or (1,) * len(at), strict=True):
        position = position + index * step
    return position


def _along(
    context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, source: LazyTensor, mode: str
) -> LazyTensor | None:
    """Write along one dim; the positions are those of each element, or of whole slices.

    Half types are added and multiplied in float32 and rounded at the end, as in most of eager's kernels.
    """
    dim %= max(x.rank, 1)
    sliced = positions.rank < x.rank or x.rank == 0
    size = positions.size
    if sliced and size != (0,):
        count = size[0] if size else 1  # a source of one dim may be longer
        size = tuple([count if d == dim else extent for d, extent in enumerate(source.size)])

    def target(at: Indices) -> Indices:
        here = (at[dim : dim + 1] or (ZERO,))[: positions.rank] if sliced else at
        found = position_in(positions.load(here), x.size[dim] if x.size else 1, wraps=False)
        return (*at[:dim], found, *at[dim + 1 :])

    dtype = compute_dtype(out.dtype) if mode in ("add", "mul") else out.dtype
    _realize_small(context, source, out.size)
    return _scattered(context, out, x, size, lambda at: source.load(at[: source.rank]), target, mode, dtype)


@lowers("scatter.src")
def scatter(context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, source: LazyTensor) -> Any:
    return _along(context, out, x, dim, positions, source, "put") or extern(context, out, x, dim, positions, source)


@lowers("scatter_add")
def scatter_add(context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, source: LazyTensor) -> Any:
    return _along(context, out, x, dim, positions, source, "add") or extern(context, out, x, dim, positions, source)


@lowers("scatter_reduce.two", "index_reduce")
def reduce_into(
    context: Context,
    out: Spec,
    x: LazyTensor,
    dim: int,
    positions: LazyTensor,
    source: LazyTensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    mode = REDUCTIONS.get(reduce) if include_self else None
    found = _along(context, out, x, dim, positions, source, mode) if mode is not None else None
    return found or extern(context, out, x, dim, positions, source, reduce, include_self=include_self)


@lowers("index_copy")
def index_copy(context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, source: LazyTensor) -> Any:
    return _along(context, out, x, dim, positions, source, "put") or extern(context, out, x, dim, positions, source)


@lowers("index_add")
def index_add(
    context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, source: LazyTensor, *, alpha: float = 1
) -> Any:
    found = _along(context, out, x, dim, positions, source, "add") if alpha == 1 else None
    return found or extern(context, out, x, dim, positions, source, alpha=alpha)


@lowers("index_put")
def index_put(
    context: Context,
    out: Spec,
    x: LazyTensor,
    indices: Sequence[LazyTensor | None],
    values: LazyTensor,
    accumulate: bool = False,
) -> Any:
    chosen = Selection.of(x.size, indices)
    found = None
    if chosen is not None:
        mode = "add" if accumulate else "put"
        _realize_small(context, values, out.size)
        wide = compute_dtype(out.dtype) if accumulate and context.device.atomics is not None else out.dtype
        found = _scattered(context, out, x, chosen.size, lambda at: broadcast(values, at), chosen.source, mode, wide)
    return found or extern(context, out, x, indices, values, accumulate)


@lowers("embedding_dense_backward")
def embedding_dense_backward(
    context: Context, out: Spec, grad: LazyTensor, positions: LazyTensor, rows: int, padding: int, by_frequency: bool
) -> Any:
    atomics = context.device.atomics
    dtype = out.dtype if atomics is None else compute_dtype(out.dtype)
    eager = atomics is not None and (dtype not in atomics["add"] or _is_ordered(dtype, "add"))
    if by_frequency or 0 in grad.size or 0 in out.size or eager:
        return extern(context, out, grad, positions, rows, padding, by_frequency)
    _realize_small(context, grad, out.size)
    zeros = pointwise(out.size, dtype, lambda at: e.const(0, dtype), 1)
    buffer = context.buffer(out.size, out.stride, dtype)
    context.write(buffer, zeros)
    axes, at = loop_axes(grad.size, tuple(range(grad.rank, 0, -1)))
    row = e.cast(positions.load(at[:-1]), "i64")
    value = e.cast(grad.load(at), dtype)
    if padding >= 0:
        value = e.op("where", e.op("eq", row, e.const(padding, "i64")), e.const(0, dtype), value)
    target = _flat((position_in(row, rows, wraps=False), at[-1]), buffer.stride)
    context.nodes.append(Nest(buffer, axes, (), value, target, "add"))
    whole = placed(out.size, Place(buffer, buffer.stride))
    return (
        whole if dtype == out.dtype else pointwise(out.size, out.dtype, lambda at: e.cast(whole.load(at), out.dtype), 1)
    )


#: The lowerings whose results lie in memory of their own.
_SCATTERS = (scatter, scatter_add, reduce_into, index_copy, index_add, index_put)
