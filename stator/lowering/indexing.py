"""Indexing: reads at loaded positions, and writes of regions that are known by their indices.

A position that is loaded counts from the end when it is negative where eager lets it (`wraps`); kernels
check that it lies in range then, and raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.extent import less
from stator.loop.index import Index
from stator.loop.ranges import Ranges
from stator.lowering.context import Context
from stator.lowering.extern import extern
from stator.lowering.joined import adjacent, all_of, cut, join, keep_parts, within
from stator.lowering.table import lowers
from stator.lowering.value import (
    Indices,
    LazyTensor,
    Size,
    Spec,
    broadcast,
    broadcast_sizes,
    compute_dtype,
    copied,
    pointwise,
)
from stator.lowering.view import from_start, slice_start
from stator.sizes import Extent, hint
from stator.sizes.strides import may_overlap


def position_in(value: Expr, extent: Extent, wraps: bool = True) -> Index:
    """A loaded integer as an index into a dim."""
    number = e.cast(value, "i64")
    if wraps and not less(-1, Ranges()(number)[0]):
        negative = e.op("lt", number, e.const(0, "i64"))
        number = e.op("where", negative, e.op("add", number, e.index(extent)), number)
    return e.to_index(number, extent)


@dataclass(frozen=True, slots=True)
class Selection:
    """`x[indices]` as a tensor of `size`: the dims of the indices, broadcast, stand where the first of them does."""

    extents: Size
    indices: Sequence[LazyTensor | None]
    size: Size
    first: int
    rank: int

    @staticmethod
    def of(extents: Size, indices: Sequence[LazyTensor | None]) -> Selection | None:
        """None for what loops cannot do: a mask selects as many elements as are true in it, which only data tells."""
        chosen = [d for d, i in enumerate(indices) if i is not None]
        tensors = [i for i in indices if i is not None]
        if any(i.dtype in ("bool", "u8") for i in tensors):
            return None
        shared: Size = ()
        for tensor in tensors:
            shared = broadcast_sizes(shared, tensor.size)
        if 0 not in shared and any(extents[d] == 0 for d in chosen):
            return None
        adjacent = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
        first = chosen[0] if adjacent else 0
        rest = tuple([n for d, n in enumerate(extents) if d not in chosen])
        return Selection(extents, indices, rest[:first] + shared + rest[first:], first, len(shared))

    def source(self, at: Indices) -> Indices:
        """Where an element of it stands in x."""
        shared = at[self.first : self.first + self.rank]
        rest = iter(at[: self.first] + at[self.first + self.rank :])
        found: list[Index] = []
        for d, extent in enumerate(self.extents):
            position = self.indices[d] if d < len(self.indices) else None
            found.append(next(rest) if position is None else position_in(broadcast(position, shared), extent))
        return tuple(found)


@lowers("index.Tensor")
def index(context: Context, out: Spec, x: LazyTensor, indices: Sequence[LazyTensor | None]) -> LazyTensor:
    chosen = Selection.of(x.size, indices)
    if chosen is None:
        return extern(context, out, x, indices)
    tensors = [i for i in indices if i is not None]
    weight = x.weight + sum([i.weight for i in tensors]) + 2 * len(tensors)
    return pointwise(out.size, out.dtype, lambda at: x.load(chosen.source(at)), weight)


@lowers("index_select")
def index_select(context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor) -> LazyTensor:
    dim %= x.rank
    if x.size[dim] == 0:
        return extern(context, out, x, dim, positions)

    def body(at: Indices) -> Expr:
        place = position_in(positions.load((at[dim],)), x.size[dim], wraps=False)
        return x.load((*at[:dim], place, *at[dim + 1 :]))

    return pointwise(out.size, out.dtype, body, x.weight + positions.weight + 1)


@lowers("gather")
def gather(
    context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor, *, sparse_grad: bool = False
) -> LazyTensor:
    if 0 in out.size:  # then the ranks may differ
        return pointwise(out.size, out.dtype, lambda at: e.const(0, out.dtype), 1)
    if x.rank == 0:
        return pointwise(out.size, out.dtype, lambda at: x.load(()), x.weight)
    dim %= x.rank
    if x.size[dim] == 0:
        return extern(context, out, x, dim, positions)

    def body(at: Indices) -> Expr:
        place = position_in(positions.load(at), x.size[dim], wraps=False)
        return x.load((*at[:dim], place, *at[dim + 1 :]))

    return pointwise(out.size, out.dtype, body, x.weight + positions.weight + 1)


@lowers("flip")
def flip(context: Context, out: Spec, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    flipped = {d % x.rank for d in dims} if x.rank else set()

    def body(at: Indices) -> Expr:
        return x.load(tuple([(x.size[d] - 1) - i if d in flipped else i for d, i in enumerate(at)]))

    return pointwise(out.size, out.dtype, body, x.weight)


@lowers("cat")
def cat(context: Context, out: Spec, tensors: Sequence[LazyTensor], dim: int = 0) -> LazyTensor:
    """Readers choose the part by index; a cat that must lie in memory is written part by part."""
    rank = len(out.size)
    parts = [t for t in tensors if t.rank == rank and (t.size != (0,) or rank != 1)]
    parts = [t if t.dtype == out.dtype else _cast(t, out.dtype) for t in parts]
    dim %= max(rank, 1)
    parts = adjacent(dim, parts) or parts
    if len(parts) == 1 and parts[0].size == out.size:
        return copied(parts[0])
    joined = join(out.size, out.dtype, dim, parts)
    if parts:
        joined.parts = dim, parts
    return joined


def _cast(value: LazyTensor, dtype: str) -> LazyTensor:
    return pointwise(value.size, dtype, lambda at: e.cast(value.load(at), dtype), value.weight + 1)


@lowers("constant_pad_nd")
def constant_pad(context: Context, out: Spec, x: LazyTensor, pads: Sequence[Extent], value: float = 0) -> LazyTensor:
    before: list[Extent] = [0] * x.rank
    for k in range(len(pads) // 2):
        before[x.rank - 1 - k] = pads[2 * k]
    border = e.number(value, out.dtype)

    def body(at: Indices) -> Expr:
        mask = all_of([within(e.index(i), before[d], before[d] + x.size[d], out.size[d]) for d, i in enumerate(at)])
        if mask.op == "const" and not mask.attr:
            return border
        return e.masked(mask, x.load(tuple([i - b for i, b in zip(at, before, strict=True)])), border)

    if 0 in x.size:
        return pointwise(out.size, out.dtype, lambda at: border, 1)
    bordered = pointwise(out.size, out.dtype, body, x.weight + 3)
    bordered.bordered = x
    return bordered


# Eager copies its operand with the strides that it has, then writes into the copy. Where elements share memory (windows
# of `unfold`), what is written to one is seen in others: ATen does that.


def _shares_elements(out: Spec) -> bool:
    return may_overlap([hint(n) for n in out.size], [hint(step) for step in out.stride])


@lowers("slice_scatter")
def slice_scatter(
    context: Context,
    out: Spec,
    x: LazyTensor,
    source: LazyTensor,
    dim: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> LazyTensor:
    if _shares_elements(out):
        return extern(context, out, x, source, dim, start, end, step)
    dim %= x.rank
    first = slice_start(x.size[dim], start)
    count = source.size[dim]
    lead = x.rank - source.rank

    def body(at: Indices) -> Expr:
        moved = at[dim] - first
        inside = within(e.index(at[dim]), first, first + (count - 1) * step + 1, x.size[dim])
        if step > 1:
            inside = all_of([inside, e.op("eq", e.index(moved % step), e.const(0, "i64"))])
        rest = x.load(at)
        if inside.op == "const" and not inside.attr:
            return rest
        return e.masked(inside, _from_source((*at[:dim], moved // step, *at[dim + 1 :])), rest)

    def _from_source(at: Indices) -> Expr:
        return e.cast(source.load(at[lead:]), out.dtype)

    if count == 0 or 0 in x.size:
        return pointwise(out.size, out.dtype, x.load, x.weight)
    value = pointwise(out.size, out.dtype, body, x.weight + source.weight + 4)
    if step == 1 and type(first) is int:
        _join_scattered(value, x, source, dim, first)
    return value


def _join_scattered(value: LazyTensor, x: LazyTensor, source: LazyTensor, dim: int, first: int) -> None:
    """Let slices of the result be taken from the source, or from `x`; what was joined before is also written so."""
    extent, count = x.size[dim], source.size[dim]
    if type(extent) is not int or type(count) is not int or source.rank != x.rank or first + count > extent:
        return
    joined_before = x.pieces is not None and x.place is None
    source = source if source.dtype == value.dtype else _cast(source, value.dtype)
    ends = (0, first), (first + count, extent - first - count)
    before, after = [[cut(x, dim, start, n)] if n else [] for start, n in ends]
    keep_parts(value, dim, [*before, source, *after])
    if joined_before:
        value.parts = value.pieces


@lowers("select_scatter")
def select_scatter(
    context: Context, out: Spec, x: LazyTensor, source: LazyTensor, dim: int, position: Extent
) -> LazyTensor:
    if _shares_elements(out):
        return extern(context, out, x, source, dim, position)
    dim %= x.rank
    chosen = e.index(from_start(position, x.size[dim]))

    def body(at: Indices) -> Expr:
        here = e.op("eq", e.index(at[dim]), chosen)
        replaced = e.cast(source.load(at[:dim] + at[dim + 1 :]), out.dtype)
        return e.op("where", here, replaced, x.load(at))

    return pointwise(out.size, out.dtype, body, x.weight + source.weight + 2)


# -- binary search ---------------------------------------------------------------------------------


@lowers("searchsorted.Tensor")
def searchsorted(
    context: Context,
    out: Spec,
    ordered: LazyTensor,
    x: LazyTensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: LazyTensor | None = None,
) -> LazyTensor:
    extent = ordered.size[-1] if ordered.rank else 1
    if type(extent) is not int or extent >= 1 << 30 or ordered.dtype != x.dtype or not ordered.rank:
        return extern(context, out, ordered, x, out_int32=out_int32, right=right, side=side, sorter=sorter)
    context.place(ordered)
    return _search(out, ordered, x, right or side == "right", sorter, extent)


def _search(
    out: Spec, ordered: LazyTensor, x: LazyTensor, right: bool, sorter: LazyTensor | None, extent: int
) -> LazyTensor:
    """How many elements of the order come before a value: by eager's probes, so that NaNs count as they do there."""
    wide = compute_dtype(x.dtype)

    def number(value: int) -> Expr:
        return e.const(value, "i32")

    def body(at: Indices) -> Expr:
        wanted = e.cast(x.load(at), wide)
        row = at[:-1] if ordered.rank > 1 else ()
        start, end = number(0), number(extent)
        for _ in range(extent.bit_length()):
            middle = e.op("add", start, e.op("shr", e.op("sub", end, start), number(1)))
            place = e.to_index(e.op("minimum", middle, number(extent - 1)), extent)
            if sorter is not None:
                place = position_in(sorter.load((*row, place)), extent, wraps=False)
            held = e.cast(ordered.load((*row, place)), wide)
            after = e.op("gt" if right else "ge", held, wanted)
            inside = e.op("lt", start, end)
            start = e.op("where", e.op("and", inside, e.op("not", after)), e.op("add", middle, number(1)), start)
            end = e.op("where", e.op("and", inside, after), middle, end)
        return e.cast(start, out.dtype)

    return pointwise(out.size, out.dtype, body, x.weight + 4 * extent.bit_length())
