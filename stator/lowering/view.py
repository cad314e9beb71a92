"""Views: each is one rewriting of indices and one of strides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from stator.base.dtypes import OPAQUE
from stator.loop.extent import less
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.joined import read_slice
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Place, Size, Spec, extent, over, placed, viewed
from stator.sizes import Extent, hint, maximum, minimum
from stator.sizes.strides import same_layout

aten = torch.ops.aten
#: Views whose lowering says where their elements lie, and does nothing else.
REMAPPED = frozenset(
    (
        aten.permute.default, aten.expand.default, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default,
        aten.squeeze.dims, aten.diagonal.default, aten.unfold.default, aten.view.default,
    )
)  # fmt: skip


@lowers("permute")
def permute(context: Context, out: Spec, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    rank = x.rank
    order = [d % rank for d in dims]
    inverse = [0] * rank
    for position, d in enumerate(order):
        inverse[d] = position
    return viewed(
        x,
        tuple([x.size[d] for d in order]),
        lambda at: tuple([at[p] for p in inverse]),
        lambda place: place._replace(stride=tuple([place.stride[d] for d in order])),
    )


@lowers("expand")
def expand(context: Context, out: Spec, x: LazyTensor, size: Sequence[int], *, implicit: bool = False) -> LazyTensor:
    lead = len(out.size) - x.rank
    grown = [n != m for n, m in zip(x.size, out.size[lead:], strict=True)]

    def restride(place: Place) -> Place:
        steps = [0 if g else s for s, g in zip(place.stride, grown, strict=True)]
        return place._replace(stride=(0,) * lead + tuple(steps))

    return viewed(
        x,
        out.size,
        lambda at: tuple([ZERO if g else i for i, g in zip(at[lead:], grown, strict=True)]),
        restride,
    )


@lowers("slice.Tensor")
def slice_(
    context: Context,
    out: Spec,
    x: LazyTensor,
    dim: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> LazyTensor:
    dim %= x.rank
    first = slice_start(x.size[dim], start)

    def remap(at: Indices) -> Indices:
        return (*at[:dim], at[dim] * step + first, *at[dim + 1 :])

    def restride(place: Place) -> Place:
        stride = place.stride
        last = minimum(first, x.size[dim]) if 0 in out.size else first
        shifted = place.offset + last * stride[dim]
        return Place(place.buffer, (*stride[:dim], stride[dim] * step, *stride[dim + 1 :]), shifted)

    value = viewed(x, out.size, remap, restride)
    return read_slice(value, x, dim, first) if step == 1 else value


def slice_start(extent: Extent, start: Extent | None) -> Extent:
    """The first position of a slice, as Python counts; one beyond a symbolic extent matters to nobody: all is empty.

    Whether it counts from the end is as in the call at hand: its shape rule has asked, so it is so in all calls.
    """
    if start is None:
        return 0
    first = maximum(start + extent if hint(start) < 0 else start, 0)
    return min(first, extent) if type(first) is int and type(extent) is int else first


def from_start(position: Extent, extent: Extent) -> Extent:
    """A position within a dim, counted from its start; of which sign it is may be open."""
    if less(position, 0):
        return position + extent
    return position if less(-1, position) else position % extent


@lowers("select.int")
def select(context: Context, out: Spec, x: LazyTensor, dim: int, position: Extent) -> LazyTensor:
    dim %= x.rank
    at_dim = Index.of(from_start(position, x.size[dim]))

    def restride(place: Place) -> Place:
        stride = place.stride
        shifted = place.offset + at_dim.const * stride[dim]
        return Place(place.buffer, stride[:dim] + stride[dim + 1 :], shifted)

    value = viewed(x, out.size, lambda at: (*at[:dim], at_dim, *at[dim:]), restride)
    return read_slice(value, x, dim, at_dim.const, dropped=True)


@lowers("unsqueeze")
def unsqueeze(context: Context, out: Spec, x: LazyTensor, dim: int) -> LazyTensor:
    dim %= x.rank + 1
    stride_at_dim = out.stride[dim]

    def restride(place: Place) -> Place:
        return place._replace(stride=(*place.stride[:dim], stride_at_dim, *place.stride[dim:]))

    return viewed(x, out.size, lambda at: at[:dim] + at[dim + 1 :], restride)


@lowers("squeeze.dims")
def squeeze(context: Context, out: Spec, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    chosen = {d % x.rank for d in dims} if x.rank else set()
    dropped = {d for d in chosen if x.size[d] == 1}
    kept = [d for d in range(x.rank) if d not in dropped]

    def remap(at: Indices) -> Indices:
        rest = iter(at)
        return tuple([ZERO if d in dropped else next(rest) for d in range(x.rank)])

    return viewed(x, out.size, remap, lambda place: place._replace(stride=tuple([place.stride[d] for d in kept])))


@lowers("diagonal")
def diagonal(context: Context, out: Spec, x: LazyTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> LazyTensor:
    dim1, dim2 = dim1 % x.rank, dim2 % x.rank
    down, right = max(-offset, 0), max(offset, 0)

    def remap(at: Indices) -> Indices:
        rest = iter(at[:-1])
        along = {dim1: at[-1] + down, dim2: at[-1] + right}
        return tuple([along[d] if d in along else next(rest) for d in range(x.rank)])

    def restride(place: Place) -> Place:
        stride = place.stride
        others = [s for d, s in enumerate(stride) if d not in (dim1, dim2)]
        shifted = place.offset + (down * stride[dim1] + right * stride[dim2] if out.size[-1] != 0 else 0)
        return Place(place.buffer, (*others, stride[dim1] + stride[dim2]), shifted)

    return viewed(x, out.size, remap, restride)


@lowers("unfold")
def unfold(context: Context, out: Spec, x: LazyTensor, dim: int, size: int, step: int) -> LazyTensor:
    if x.rank == 0:
        return viewed(x, out.size, lambda at: (), lambda place: place._replace(stride=(1,)))
    dim %= x.rank

    def remap(at: Indices) -> Indices:
        return (*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1])

    def restride(place: Place) -> Place:
        stride = place.stride
        return place._replace(stride=(*stride[:dim], stride[dim] * step, *stride[dim + 1 :], stride[dim]))

    return viewed(x, out.size, remap, restride)


@lowers("as_strided")
def as_strided(
    context: Context, out: Spec, x: LazyTensor, size: Size, stride: Size, offset: Extent | None = None
) -> LazyTensor:
    """Counts from the start of the storage, so the value must lie in memory as eager lays it.

    The result is another name of that memory, which a caller may get: that of a copy is not what it was copied from.
    """
    assert context.node is not None
    operand = context.node.args[0].meta["val"]  # type: ignore[union-attr]
    moved = 0 if offset is None else offset - extent(operand.storage_offset())
    if x.raw is None:
        return _reread(context, operand, x, size, stride, moved)
    inner = out.numbers
    return over(_reread(context, operand, x.raw, inner.size, inner.stride, moved * OPAQUE[x.dtype][1]), x.dtype)


def _reread(
    context: Context, operand: torch.Tensor, x: LazyTensor, size: Size, stride: Size, moved: Extent
) -> LazyTensor:
    """The memory of an operand read another way, from so many elements behind its first."""
    place, laid = context.own_place(x), Spec.of(operand).numbers.stride
    if not same_layout(x.size, place.stride, laid):
        buffer = context.buffer(x.size, laid, x.dtype, exact=True)
        context.write(buffer, x)
        place = Place(buffer, buffer.stride)
    return placed(tuple(size), Place(place.buffer, tuple(stride), place.offset + moved))


@lowers("view")
def view(context: Context, out: Spec, x: LazyTensor, size: Sequence[int]) -> LazyTensor:
    if x.size == out.size:
        return x
    return viewed(
        x,
        out.size,
        lambda at: reshape_indices(at, out.size, x.size),
        lambda place: _restrided(x.size, out.size, place),
    )


def _restrided(old: Size, new: Size, place: Place) -> Place | None:
    stride = view_strides(old, place.stride, new)
    return None if stride is None else place._replace(stride=stride)


def view_strides(old: Size, stride: Size, new: Size) -> Size | None:
    """Strides with which `new` sees the elements of `old` in the same order, if there are any."""
    if 0 in old:
        return tuple([maximum(prod(new[d + 1 :]), 1) for d in range(len(new))])
    result: list[Extent] = [0] * len(new)
    d = len(new) - 1
    run: Extent = 1
    step: Extent = stride[-1] if old else 1  # elements and step of the memory run that is being shared out
    for k in range(len(old) - 1, -1, -1):
        run *= old[k]
        if k > 0 and (old[k - 1] == 1 or stride[k - 1] == run * step):
            continue
        taken: Extent = 1
        while d >= 0 and (hint(taken) < hint(run) or new[d] == 1):
            result[d] = taken * step
            taken *= new[d]
            d -= 1
        if taken != run:
            return None
        if k > 0:
            run, step = 1, stride[k - 1]
    for rest in range(d, -1, -1):
        result[rest] = result[rest + 1] * new[rest + 1] if rest + 1 < len(new) else 1
    return tuple(result)


def reshape_indices(at: Indices, new: Size, old: Size) -> Indices:
    """The indices into a tensor of size `old` for those of its reshape to `new`.

    Dims are matched in groups of equal product, so that `//` and `%` appear only inside a group. A view has all
    elements of what it is of, so what is left over is a group too, even where nothing shows that its products are
    equal.
    """
    result: list[Index] = [ZERO] * len(old)
    if 0 in old:
        return tuple(result)
    i, j = len(new) - 1, len(old) - 1
    while j >= 0:
        group_new, group_old = [], [j]
        a: Extent = 1
        b = old[j]
        j -= 1
        while (a != b and (i >= 0 or j >= 0)) or (i >= 0 and new[i] == 1):
            if j < 0 or (i >= 0 and hint(a) <= hint(b)):
                group_new.append(i)
                a *= new[i]
                i -= 1
            else:
                group_old.append(j)
                b *= old[j]
                j -= 1
        flat = Index.of(0)
        step: Extent = 1
        for d in group_new:
            flat = flat + at[d] * step
            step *= new[d]
        _share_out(result, flat, group_old, old)
    return tuple(result)


def _share_out(result: list[Index], flat: Index, dims: list[int], size: Size) -> None:
    """Split a flat index over dims, innermost first."""
    for position, d in enumerate(dims):
        last = position == len(dims) - 1
        result[d] = flat if last else flat % size[d]
        if not last:
            flat = flat // size[d]
