"""Scatters: writes at loaded positions.

An accumulating scatter is a copy of the destination and a nest in mode "add" where the device adds
atomically; on a CPU, and where order would matter, ATen's kernels are called. `adds_in_place` is
that decision. A destination that nobody else reads, in memory that is the graph's own, is not copied:
`spent` says which; then a nest is the better choice on a CPU too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stator.loop import expr as e
from stator.loop.index import Index
from stator.loop.nest import Buffer, Nest
from stator.lowering.context import Context, loop_axes
from stator.lowering.extern import extern
from stator.lowering.indexing import position_in
from stator.lowering.table import lowers
from stator.lowering.value import Indices, Place, Size, Spec, Tensorish, broadcast, placed
from stator.prims.set import PRIMITIVES


def adds_in_place(context: Context, out: Spec) -> bool:
    """Whether a nest in mode "add" may do it."""
    return context.device == "cuda" and out.dtype in ("f32", "i32") and 0 not in out.size


def spent(context: Context, out: Spec, x: Tensorish) -> Buffer | None:
    """The buffer of the node's first argument, if that is the result of a call and nothing but this node reads it."""
    assert context.node is not None
    source: Any = context.node.args[0]
    primitive = PRIMITIVES.get(source.target)
    owned = source.target is context.node.target or (primitive is not None and primitive.kind == "extern")
    if not owned or x.place is None or x.place.stride != out.stride or context.uses[source].count > 1:
        return None
    return x.place.buffer if out.dtype in ("f32", "f64") else None


def _accumulate(context: Context, buffer: Buffer, size: Size, source: Tensorish, position: Any) -> None:
    """For every index of `size`, add the source's element to `buffer[position(index)]`."""
    axes, at = loop_axes(size, tuple(range(len(size), 0, -1)))
    value = e.cast(broadcast(source, at), buffer.dtype)
    context.nodes.append(Nest(buffer, axes, (), value, position(at), "add"))


def _copy(context: Context, out: Spec, x: Tensorish) -> Buffer:
    buffer = context.buffer(out.size, out.stride, out.dtype)
    context.write(buffer, x)
    return buffer


@lowers("scatter_add")
def scatter_add(context: Context, out: Spec, x: Tensorish, dim: int, positions: Tensorish, source: Tensorish) -> Any:
    if not adds_in_place(context, out) or x.rank == 0 or 0 in positions.size:
        return extern(context, out, x, dim, positions, source)
    dim %= x.rank
    buffer = _copy(context, out, x)

    def position(at: Indices) -> Index:
        target = position_in(positions.load(at), x.size[dim], wraps=False)
        return _flat((*at[:dim], target, *at[dim + 1 :]), buffer.stride)

    _accumulate(context, buffer, positions.size, source, position)
    return placed(out.size, Place(buffer, buffer.stride))


@lowers("index_add")
def index_add(
    context: Context, out: Spec, x: Tensorish, dim: int, positions: Tensorish, source: Tensorish, *, alpha: float = 1
) -> Any:
    if not adds_in_place(context, out) or alpha != 1 or not x.rank or not positions.rank or 0 in source.size:
        return extern(context, out, x, dim, positions, source, alpha=alpha)
    dim %= x.rank
    buffer = _copy(context, out, x)

    def position(at: Indices) -> Index:
        target = position_in(positions.load((at[dim],)), x.size[dim], wraps=False)
        return _flat((*at[:dim], target, *at[dim + 1 :]), buffer.stride)

    _accumulate(context, buffer, source.size, source, position)
    return placed(out.size, Place(buffer, buffer.stride))


@lowers("index_put")
def index_put(
    context: Context,
    out: Spec,
    x: Tensorish,
    indices: Sequence[Tensorish | None],
    values: Tensorish,
    accumulate: bool = False,
) -> Any:
    leading = all(i is not None and i.dtype not in ("bool", "u8") for i in indices)
    buffer = spent(context, out, x) if accumulate else None
    if not accumulate or not leading or (buffer is None and not adds_in_place(context, out)):
        return extern(context, out, x, indices, values, accumulate)
    tensors = [i for i in indices if i is not None]
    shape: Size = ()
    for tensor in tensors:
        shape = _broadcast_sizes(shape, tensor.size)
    rest = x.size[len(tensors) :]
    if 0 in shape or 0 in rest:
        return extern(context, out, x, indices, values, accumulate)
    buffer = buffer or _copy(context, out, x)

    def position(at: Indices) -> Index:
        shared = at[: len(shape)]
        found = [position_in(broadcast(t, shared), x.size[d]) for d, t in enumerate(tensors)]
        return _flat((*found, *at[len(shape) :]), buffer.stride)

    _accumulate(context, buffer, shape + rest, values, position)
    return placed(out.size, Place(buffer, buffer.stride))


@lowers("embedding_dense_backward")
def embedding_dense_backward(
    context: Context, out: Spec, grad: Tensorish, positions: Tensorish, rows: int, padding: int, by_frequency: bool
) -> Any:
    summed = adds_in_place(context, out) or (context.device == "cpu" and out.dtype in ("f32", "f64"))
    if by_frequency or not summed or 0 in grad.size:
        return extern(context, out, grad, positions, rows, padding, by_frequency)
    buffer = context.buffer(out.size, out.stride, out.dtype)
    axes, at = loop_axes(out.size, buffer.stride)
    context.nodes.append(Nest(buffer, axes, (), e.const(0, out.dtype), _flat(at, buffer.stride)))
    axes, at = loop_axes(grad.size, tuple(range(grad.rank, 0, -1)))
    row = e.cast(positions.load(at[:-1]), "i64")
    value = e.cast(grad.load(at), out.dtype)
    if padding >= 0:
        value = e.op("where", e.op("eq", row, e.const(padding, "i64")), e.const(0, out.dtype), value)
    target = _flat((position_in(row, rows, wraps=False), at[-1]), buffer.stride)
    context.nodes.append(Nest(buffer, axes, (), value, target, "add"))
    return placed(out.size, Place(buffer, buffer.stride))


def _flat(at: Indices, stride: Size) -> Index:
    position = Index.of(0)
    for index, step in zip(at, stride, strict=True):
        position = position + index * step
    return position


def _broadcast_sizes(a: Size, b: Size) -> Size:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple([m if n == 1 else n for n, m in zip(a, b, strict=True)])
