"""Values that are joined from parts along a dim, and what a slice of one is: of those parts only that it meets.

A program that fills a tensor slice by slice (`y[:, :k] = a; y[:, k:] = y[:, :m]`) joins it from parts at every step,
and reads slices of what it has so far. Taken from the parts, such a slice asks for no position but where it meets
several. Parts that follow each other in memory are one part.
Neighbours: `indexing.py` and `view.py`, whose lowerings these are parts of.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.extent import less
from stator.loop.index import ZERO
from stator.lowering.value import Indices, LazyTensor, Size, placed, pointwise
from stator.sizes import Extent

#: Parts of parts that are kept; slices along several dims in turn would double them each time.
MOST_PARTS = 32


def join(size: Size, dtype: str, dim: int, parts: Sequence[LazyTensor]) -> LazyTensor:
    """The parts one after the other along a dim; readers choose by index."""
    starts: list[Extent] = [0]
    for part in parts:
        starts.append(starts[-1] + part.size[dim])
    extent = starts[-1]

    def body(at: Indices) -> Expr:
        position = e.index(at[dim])
        value = e.const(0, dtype)
        for start, part in zip(reversed(starts[:-1]), reversed(parts), strict=True):
            end = start + part.size[dim]
            if start == end:
                continue
            loaded = part.load((*at[:dim], at[dim] - start, *at[dim + 1 :]))
            value = e.masked(within(position, start, end, extent), loaded, value)
        return value

    joined = pointwise(size, dtype, body, 1 + sum([p.weight + 2 for p in parts]))
    keep_parts(joined, dim, parts)
    return joined


def keep_parts(value: LazyTensor, dim: int, parts: Sequence[LazyTensor]) -> None:
    """Let slices of the value be taken from what it is joined from, where all positions are known."""
    others = value.size[:dim] + value.size[dim + 1 :]
    kept: list[LazyTensor] = []
    for part in parts:
        if type(part.size[dim]) is not int or part.size[:dim] + part.size[dim + 1 :] != others:
            return
        if part.pieces is not None and part.pieces[0] == dim and part.place is None:
            kept += part.pieces[1]
        elif part.size[dim] != 0:
            kept.append(part)
    if kept and sum([_count(part) for part in kept]) <= MOST_PARTS:
        value.pieces = dim, kept


def adjacent(dim: int, parts: Sequence[LazyTensor]) -> list[LazyTensor]:
    """The parts along a dim, those that follow each other in memory as one: what was split is whole again."""
    found: list[LazyTensor] = []
    for part in parts:
        for piece in _in_memory(dim, part):
            whole = _followed(dim, found[-1], piece) if found else None
            if whole is not None:
                found[-1] = whole
            elif piece.size[dim] != 0:
                found.append(piece)
    return found


def _in_memory(dim: int, part: LazyTensor) -> Sequence[LazyTensor]:
    """What a part that lies nowhere is joined from, if that lies in memory; otherwise the part."""
    if part.place is None and part.pieces is not None and part.pieces[0] == dim and is_read(part):
        return part.pieces[1]
    return [part]


def is_read(value: LazyTensor) -> bool:
    """Whether all that a value is joined from lies in memory."""
    return value.pieces is not None and all(piece.place is not None for piece in value.pieces[1])


def _followed(dim: int, a: LazyTensor, b: LazyTensor) -> LazyTensor | None:
    """Two values in memory as one, if the second follows the first there along a dim."""
    first, second = a.place, b.place
    if first is None or second is None or first.buffer is not second.buffer:
        return None
    steps = {place.stride[dim] for value, place in ((a, first), (b, second)) if value.size[dim] != 1}
    step = second.offset - first.offset if not steps else steps.pop()
    stride = (*first.stride[:dim], step, *first.stride[dim + 1 :])
    others = zip(a.size, first.stride, second.stride, strict=True)
    if steps or any(n != 1 and one != other for d, (n, one, other) in enumerate(others) if d != dim):
        return None
    if second.offset != first.offset + a.size[dim] * step:
        return None
    size = (*a.size[:dim], a.size[dim] + b.size[dim], *a.size[dim + 1 :])
    return placed(size, first._replace(stride=stride))


def _count(value: LazyTensor) -> int:
    return 1 if value.pieces is None else sum([_count(part) for part in value.pieces[1]])


def cut(value: LazyTensor, dim: int, first: int, count: int) -> LazyTensor:
    """`value[first : first + count]` along a dim, from the parts that it meets."""
    size = (*value.size[:dim], count, *value.size[dim + 1 :])
    if count == value.size[dim]:
        return value
    if value.place is not None:
        place = value.place
        return placed(size, place._replace(offset=place.offset + first * place.stride[dim]))
    if value.pieces is None:
        return pointwise(
            size, value.dtype, lambda at: value.load((*at[:dim], at[dim] + first, *at[dim + 1 :])), value.weight
        )
    along, parts = value.pieces
    if along != dim:
        return join(size, value.dtype, along, [cut(part, dim, first, count) for part in parts])
    met, start = [], 0
    for part in parts:
        extent = part.size[dim]
        assert type(extent) is int
        low, high = max(first - start, 0), min(first + count - start, extent)
        if low < high:
            met.append(cut(part, dim, low, high - low))
        start += extent
    return met[0] if len(met) == 1 else join(size, value.dtype, dim, met)


def read_slice(view: LazyTensor, base: LazyTensor, dim: int, first: Extent, dropped: bool = False) -> LazyTensor:
    """Read a view of consecutive positions (of one, whose dim is dropped) from parts, while its base lies nowhere."""
    extent = base.size[dim]
    count = 1 if dropped else view.size[dim]
    if (
        view.base is not base
        or base.pieces is None
        or type(first) is not int
        or type(count) is not int
        or 0 in view.size
    ):
        return view
    if type(extent) is not int or not 0 <= first <= extent - count or count == 0:
        return view
    found, plain = cut(base, dim, first, count), view.body
    assert plain is not None

    def body(at: Indices) -> Expr:
        if base.place is not None:
            return plain(at)
        return found.load((*at[:dim], ZERO, *at[dim:]) if dropped else at)

    view.rewrite(body, found.weight)
    if not dropped:
        view.pieces = (dim, [found]) if found.place is not None else found.pieces
    return view


def within(position: Expr, start: Extent, end: Extent, extent: Extent) -> Expr:
    """Whether a position of a dim of `extent` lies in start … end-1."""
    conditions = []
    if less(0, start) or type(start) is not int:
        conditions.append(e.op("ge", position, e.index(start)))
    if end != extent and not less(extent, end):
        conditions.append(e.op("lt", position, e.index(end)))
    return all_of(conditions)


def all_of(conditions: list[Expr]) -> Expr:
    """Whether all of the conditions hold."""
    result = e.const(True, "bool")
    for condition in conditions:
        result = e.op("and", result, condition)
    return result
