"""Decides how large a piece of a kernel one block of a GPU's threads takes.

A block is a tile of up to three rows of points: outer points along `x`, where memory wants it also along `y`, and
points of the reduce axes along `r`. What is left of the outer axes is `z`, of which each program has one point.
- Pointwise: one flat range, or the last axis alone if blocks divide it. Where some memory is contiguous along another
  axis than the rest, a tile over both, so that whole lines of each are moved.
- Rows: so many rows by all of `r`, which are loaded once and kept in registers; in a loop where a row is too long.
- Columns: neighbours in memory lie along an outer axis. So many columns by so many rows of them, in a loop.
The numbers follow from the kernel's sizes, from strides and from the device record. Symbolic sizes count as what they
were in the first call, and a row of symbolic length is always walked in a loop.
Neighbours: `strategies` makes functions by these plans; `decisions` is for vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.kernel.cost import total_cost
from stator.kernel.decisions import pieces_of, roots_of_loops, used_by_several_loops
from stator.loop.expr import Expr
from stator.loop.index import Axis, FloorDiv, Index, Mod
from stator.loop.kernel import Kernel
from stator.loop.space import loops
from stator.sizes import Extent, hint

#: A padded tile may have so many times the points of the axis that it covers.
PADDING = 1.25
#: How many times the points of a block of columns one of windows may have, to take whole rows.
_AT_ONCE = 4
#: Threads that a program may have on any maker's GPUs.
_MOST_THREADS = 1024
#: Loads of a point of a long row, up to which a program has twice the threads of others.
_FEW = 3
#: Points that a thread takes at least, where a kernel has many loads of each.
_LEAST = 4
#: Cost units of a point up to which a kernel moves memory and does little else, and how many loads, each of which a
#: thread waits for; points that a thread takes at most then, unless one access of the narrowest memory is of more.
_LITTLE, _SEVERAL, _EACH = 25, 2, 8
#: How many times the bytes of a thread one has of a wide result, where it reads narrow memory.
_WIDE = 2
#: How many times the points of a thread one has that looks for the place of an extreme.
_PLACES = 8
#: An access to fewer of a kernel's points than this part stays in a cache, however it is read.
CACHED = 8
#: Which part of a cache a kernel may ask to have.
_ROOM = 4


@dataclass(frozen=True, slots=True)
class Points:
    """Outer axes as one range in this order, and how many points of it a block takes: a power of two."""

    name: str
    axes: tuple[Axis, ...]
    count: int

    @property
    def size(self) -> Extent:
        return prod([axis.size for axis in self.axes])

    @property
    def blocks(self) -> Extent:
        """In how many blocks the range is cut."""
        return pieces_of(self.size, self.count)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The decisions for one kernel: the points of a block, outermost first, its threads, and how it reads a row."""

    kernel: Kernel
    outer: tuple[Points, ...]
    r: int
    threads: int
    staged: tuple[Expr, ...] = ()
    online: bool = False  # whether one loop over a row reduces what takes two if each is on its own
    turns: int = 0  # rows that a program takes one after the other, where it sums them up down columns too
    stages: int = 1  # of these, or of the pieces of a row, for how many loads are under way at once
    kept: tuple[str, ...] = ()  # memory that the cache is to keep, as many programs read it

    def reason(self, device: Device) -> str:
        """The decisions in a line."""
        count = pieces_of(prod([hint(points.blocks) for points in self.outer]), max(self.turns, 1))
        counts = [points.count for points in self.outer if points.name != "z"] + [self.r] * bool(
            self.kernel.reduce_axes
        )
        size = " by ".join(map(str, counts))
        kept = f", {len(self.staged)} values of a row kept" if self.staged else ", in one loop" * self.online
        kept += f", {self.turns} rows in turn, summed down columns" if self.turns else ""
        kept += f", {self.stages} under way at once" if self.stages > 1 else ""
        kept += f", {', '.join(self.kept)} kept in the cache" * bool(self.kept)
        return f"{count} blocks of {size} by {self.threads} threads, of which {device.programs} fill the device{kept}"


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def choose(kernel: Kernel, device: Device) -> BlockPlan:
    """The blocks of a kernel."""
    if not kernel.reduce_axes:
        return _pointwise(kernel, device)
    if any(store.mode == "sum" for store in kernel.stores):
        return _mixed(kernel, device)
    return _columns(kernel, device) if along_columns(kernel) else _rows(kernel, device)


# ---- pointwise


def _pointwise(kernel: Kernel, device: Device) -> BlockPlan:
    outer, crossing = hint(kernel.outer_numel), _crossing(kernel)
    short = [axis for axis in crossing if hint(axis.size) <= device.short_axis]
    if len(crossing) > 1 and not short:
        tile = _tile(kernel, crossing, device)
        points = prod([points.count for points in tile])
        return BlockPlan(kernel, tile, 1, _threads(points, device.thread_points, device), kept=_kept(kernel, device))
    axes = kernel.axes
    if (
        len(crossing) > 1
    ):  # neighbours along a short axis are taken together: each access finds some of its own in a row
        axes = (*[axis for axis in axes if axis is not short[-1]], short[-1])
    each, narrow = _each(kernel, outer, device)
    several = min(each, _LEAST)
    loaded = any(index.has_indirect for index, _ in _accesses(kernel))  # then more loads are to be under way
    most = device.block_bytes * each // device.thread_bytes * (2 if loaded else 1)
    size = _shared(min(max(most, 1), power_of_two(outer)), 128, outer, device)
    taken = _flat(axes, size, device)
    cost, numel = total_cost(kernel), kernel.outer_numel
    much = cost > device.much_work * numel > 0
    if 0 < device.many_loads <= _loads(kernel, taken[-1].axes) or much:
        each = max(each // 4, several)
    elif not loaded and (cost <= _LITTLE * numel or _loads(kernel, axes[-1:]) >= _SEVERAL):
        each = min(each, max(device.vector_bytes // narrow, _EACH))
    if (apart := _apart(kernel, axes, outer)) > 0:
        each = max(several // apart, 1)
    return BlockPlan(kernel, taken, 1, _threads(size, each, device), kept=_kept(kernel, device))


def _kept(kernel: Kernel, device: Device) -> tuple[str, ...]:
    """Memory that programs far apart read, such as a table of rows or of angles: what streams by would displace it.

    Not what the nearest cache has anyway, and nothing where that leaves no room for the rest.
    """
    read = {node.attr[0] for node in kernel.nodes if node.op == "load"}
    few = hint(kernel.outer_numel) // CACHED
    small = [p for p in kernel.params if p.name in read and p.role == "in" and hint(p.numel) <= few]
    sizes = {param.name: hint(param.numel) * ITEMSIZE[param.dtype] for param in small}
    kept = [name for name, nbytes in sizes.items() if nbytes > device.near_bytes]
    return tuple(kept) if sum([sizes[name] for name in kept]) * _ROOM <= device.cache_bytes else ()


def _each(kernel: Kernel, outer: int, device: Device) -> tuple[int, int]:
    """Points of a thread, where it has time for them: as many as fill its accesses of the widest result, or one of the
    narrowest memory; and the bytes of an element of that.

    A narrow operand is read by as few instructions as a wide one is then, for which a thread has more accesses.
    """
    width = max([ITEMSIZE[store.value.dtype] for store in kernel.stores])
    whole = [(i, dtype) for i, dtype in _accesses(kernel) if prod([hint(a.size) for a in i.axes()]) * CACHED > outer]
    narrow = min([ITEMSIZE[dtype] for index, dtype in whole if not index.has_indirect], default=width)
    most = _WIDE * device.thread_bytes // width
    return max(device.thread_bytes // width, min(device.vector_bytes // narrow, most)), narrow


def _loads(kernel: Kernel, axes: Sequence[Axis]) -> int:
    """How many loads of a kernel are of several elements where these axes go on."""
    found = [node.attr[1] for node in kernel.nodes if node.op == "load"]
    return sum([index.has_indirect or not index.axes().isdisjoint(axes) for index in found])


def _apart(kernel: Kernel, axes: Sequence[Axis], outer: int) -> int:
    """How far what neighbours of the last axis load lies apart, at most; 0 where all is side by side, or one for all.

    A thread has its points side by side, for its stores, so what a warp loads at once is as many times as far apart.
    """
    if not axes:
        return 0
    found = [node.attr[1] for node in kernel.nodes if node.op == "load" and axes[-1] in node.attr[1].axes()]
    whole = [i for i in found if not i.has_indirect and prod([hint(axis.size) for axis in i.axes()]) * CACHED > outer]
    steps = [index.stride(axes[-1]) for index in whole if not _steps(index, axes[-1])]
    return max([abs(hint(step or 1)) for step in steps], default=0)


def _flat(axes: tuple[Axis, ...], size: int, device: Device) -> tuple[Points, ...]:
    """One range of points; or the last axis, where blocks end where it does: what does not vary along it is one number.

    A block that is a part of a row needs no quotients and remainders of each of its points.
    """
    *rest, last = axes or (None,)
    if last is None or not any(map(loops, rest)) or type(last.size) is not int:
        return (Points("x", axes, size),)
    if last.size % size != 0 or size < device.warp * device.thread_points:
        return (Points("x", axes, size),)
    return Points("z", tuple(rest), 1), Points("x", (last,), size)


def _threads(points: int, each: int, device: Device) -> int:
    """Threads for a block of so many points, of which each thread takes so many."""
    warps = points // (device.warp * max(each, 1))
    return device.warp * max(1, min(device.max_warps, power_of_two(warps)))


def _crossing(kernel: Kernel) -> list[Axis]:
    """The axes along which the kernel's accesses to memory are contiguous: that of the most bytes last."""
    votes: dict[Axis, int] = {}
    total = hint(kernel.outer_numel)
    for index, dtype in _accesses(kernel):
        points = prod([hint(axis.size) for axis in index.axes()])
        along = _along(index, kernel.axes)
        if along is not None and points * CACHED > total:
            votes[along] = votes.get(along, 0) + ITEMSIZE[dtype]
    order = {axis: number for number, axis in enumerate(kernel.axes)}
    return sorted(votes, key=lambda axis: (votes[axis], order[axis]))


def _accesses(kernel: Kernel) -> list[tuple[Index, str]]:
    """Where memory is read and written, each place once, and the dtype that lies there."""
    found = {node.attr: node.dtype for node in kernel.nodes if node.op == "load"}
    found |= {(store.buffer, store.index): store.value.dtype for store in kernel.stores}
    return [(index, dtype) for (_, index), dtype in found.items()]


def _along(index: Index, axes: Sequence[Axis]) -> Axis | None:
    """The axis along which an index goes through memory step by step."""
    return next((axis for axis in reversed(axes) if loops(axis) and _steps(index, axis)), None)


def _steps(index: Index, axis: Axis) -> bool:
    """Whether neighbours along an axis are neighbours in memory, but for where a remainder starts again."""
    steps = [
        step * atom.inner.coefficient(axis) if isinstance(atom, Mod) else step
        for atom, step in index.terms
        if atom is axis or (isinstance(atom, Mod) and axis in atom.inner.axes())
    ]
    return len(steps) == 1 and steps[0] in (1, -1)


def _tile(kernel: Kernel, crossing: Sequence[Axis], device: Device) -> tuple[Points, ...]:
    """A tile over the two axes that matter most; the others are single points, or go with one too short for a tile."""
    across, along = crossing[-2:]
    most = [power_of_two(hint(axis.size)) for axis in (across, along)]
    side = max(device.line_bytes // max([ITEMSIZE[dtype] for _, dtype in _accesses(kernel)]), 1)
    while side > 32 and hint(kernel.outer_numel) < side * side * device.programs:
        side //= 2
    rows, columns = (min(side, count) for count in most)
    rows = min(side * side // columns, most[0])
    columns = min(side * side // rows, most[1])
    rest = tuple([axis for axis in kernel.axes if axis not in (across, along)])
    if rows * columns * 2 < side * side and rest:
        return Points("y", (*rest, across), side * side // columns), Points("x", (along,), columns)
    tile = (Points("y", (across,), rows), Points("x", (along,), columns))
    return (Points("z", rest, 1), *tile) if any(map(loops, rest)) else tile


# ---- reductions


def along_columns(kernel: Kernel) -> bool:
    """Whether neighbours in memory lie along an outer axis rather than along the reduce axes."""
    if not kernel.axes or kernel.reduce_numel <= 1:
        return False
    outer, inner = kernel.axes[-1], kernel.reduce_axes[-1]
    total, votes = hint(kernel.outer_numel) * hint(kernel.reduce_numel), 0
    for node in kernel.nodes:
        if node.op == "load" and node in kernel.inner:
            position = node.attr[1]
            all_of_it = prod([hint(axis.size) for axis in position.axes()]) * CACHED > total
            votes += _steps(position, outer) - _steps(position, inner) if all_of_it else 0
    return votes > 0


def _columns(kernel: Kernel, device: Device) -> BlockPlan:
    *rest, along = kernel.axes
    outer, reduced, width = hint(kernel.outer_numel), hint(kernel.reduce_numel), hint(along.size)
    x = _shared(min(device.columns, power_of_two(outer)), device.min_columns or 1, outer, device)
    few = pieces_of(outer, x) < device.programs  # then each has more threads, and more of what it reads again
    again = few and any(store.space == "inner" for store in kernel.stores)
    r = min(device.column_points * (2 if again else 1) // x, power_of_two(reduced))
    if _windows(kernel) >= device.many_loads > 0 and type(kernel.reduce_numel) is int:
        x, r = _of_windows(x, r, width, reduced, device)
    points: tuple[Points, ...] = (Points("x", kernel.axes, x),)
    if any(map(loops, rest)) and -(-width // x) * x <= PADDING * width:
        points = (Points("z", tuple(rest), 1), Points("x", (along,), x))
    each = device.thread_points // 2 if few else device.thread_points
    return _reducing(kernel, points, r, _threads(x * r, each, device), device)


def _of_windows(x: int, r: int, width: int, reduced: int, device: Device) -> tuple[int, int]:
    """Columns and rows of a block that reads at many places of a window.

    These share lines, of which halves are read; and rows are taken at once, as a loop over them would keep what each
    place is multiplied by in registers.
    """
    columns, rows = min(device.columns // 2, power_of_two(width)), power_of_two(reduced)
    return (columns, rows) if columns * rows <= device.column_points * _AT_ONCE else (x, r)


def _windows(kernel: Kernel) -> int:
    """How many places of one memory a kernel reads, at most."""
    found = Counter([node.attr[0] for node in kernel.nodes if node.op == "load" and node in kernel.inner])
    return max(found.values(), default=0)


def _rows(kernel: Kernel, device: Device) -> BlockPlan:
    outer, reduced = hint(kernel.outer_numel), hint(kernel.reduce_numel)
    fixed = type(kernel.reduce_numel) is int
    r = power_of_two(reduced) if fixed else min(power_of_two(reduced), device.loop_points)
    if r > device.row_elements:
        r, threads = _of_long_rows(kernel, device)
        return _reducing(kernel, (Points("x", kernel.axes, 1),), r, threads, device)
    points, each = _of_rows(kernel, r, reduced, device)
    x = _shared(min(power_of_two(outer), max(1, points // r)), 1, outer, device)
    return _reducing(kernel, (Points("x", kernel.axes, x),), r, _threads(x * r, each, device), device)


def _of_long_rows(kernel: Kernel, device: Device) -> tuple[int, int]:
    """Points that a program takes at once of a row that it walks in loops, and its threads.

    With twice the threads half as many rows are under way: the last ones end together, and what a second loop reads
    again is still in the cache. Those that compare places, scan or sum exponentials take more points each instead, as
    what they do for each block of points is what takes long. Not so a variance in one loop, nor what is much for each
    point, whose threads would have too few registers; and nothing where many of the points would lie past the end.
    """
    points, most = device.loop_points, device.max_warps * device.warp
    loops, stored = len(roots_of_loops(kernel)), any(store.space == "inner" for store in kernel.stores)
    deep = any(node.op == "scan" for node in kernel.nodes) or (loops > 1 and any(n.op == "exp" for n in kernel.inner))
    few = sum([node.op == "load" for node in kernel.inner]) <= _FEW
    few = few and all(node.dtype != "f64" for node in kernel.inner)
    length = hint(kernel.reduce_numel)
    if -(-length // (2 * points)) * 2 > PADDING * -(-length // points):
        return points, most
    if _positions(kernel) or (few and deep):
        fewer = _stages(kernel, 2 * points, device) < _stages(kernel, points, device)
        return (points, most) if fewer else (2 * points, most)
    again = device.programs * _row_bytes(kernel) > device.cache_bytes
    if few and loops == 1 + stored and (again or not stored):
        return 2 * points, min(2 * most, _MOST_THREADS)
    return points, most


def _of_rows(kernel: Kernel, r: int, reduced: int, device: Device) -> tuple[int, int]:
    """Points that a program takes of whole rows together, and each of its threads.

    Where results are all that is stored, threads have nothing to do between loads and the sum of all of them, so there
    are many, with two loads of whole vectors each. Those of several reductions wait for all of a row at each, and
    comparing places takes more than loading: then there are few.
    """
    each = device.thread_points
    if any(store.space == "inner" for store in kernel.stores):
        return device.row_points, 2 * each if r <= device.warp * each else each  # a row is in one warp, or in few
    if _positions(kernel):
        return device.row_points, _PLACES * each
    if len(roots_of_loops(kernel)) > 1:
        return device.row_points, 2 * each
    width = max([ITEMSIZE[node.dtype] for node in kernel.inner if node.op == "load"], default=1)
    return 2 * device.row_points, each if reduced < r else min(each, max(device.thread_bytes // width, each // 2))


def _positions(kernel: Kernel) -> bool:
    """Whether a kernel looks for places of extremes."""
    return any(node.op == "reduce" and node.attr.startswith("arg") for node in kernel.nodes)


def _mixed(kernel: Kernel, device: Device) -> BlockPlan:
    """Each program has as many rows as it sums into one place."""
    outer, length, sizes = kernel.outer_numel, kernel.reduce_numel, {param.name: param.numel for param in kernel.params}
    sums = {sizes[store.buffer] for store in kernel.stores if store.mode == "sum"}
    assert type(outer) is int and type(length) is int, "only fixed rows are taken in turn"
    (turns,) = {outer * length // numel for numel in sums if type(numel) is int}
    r = power_of_two(length)
    threads = _threads(r, device.thread_points // 2, device)
    plan = _reducing(kernel, (Points("x", _in_rows(kernel), 1),), r, threads, device)
    return replace(plan, turns=turns, stages=device.row_stages)


def _in_rows(kernel: Kernel) -> tuple[Axis, ...]:
    """The outer axes so that one range of them goes through the rows in their order, as sums down columns count them.

    A sum lies at `row // turns`, of which an axis within one turn is no part, and one of several has a divisor.
    """
    index = next(store.index for store in kernel.stores if store.mode == "sum")
    weights = dict.fromkeys(kernel.axes, Fraction(0))
    for atom, factor in index.terms:
        inner, divisor = (atom.inner.terms, atom.divisor) if isinstance(atom, FloorDiv) else (((atom, 1),), 1)
        for axis, step in inner:
            if isinstance(axis, Axis) and axis in weights:
                weights[axis] += Fraction(hint(factor * step), hint(divisor))
    return tuple(sorted(kernel.axes, key=lambda axis: -weights[axis]))


def _reducing(kernel: Kernel, points: tuple[Points, ...], r: int, threads: int, device: Device) -> BlockPlan:
    whole = type(kernel.reduce_numel) is int and r >= kernel.reduce_numel
    online = not whole and points[-1].count * _row_bytes(kernel) >= device.near_bytes
    stages = 1 if whole else _stages(kernel, points[-1].count * r, device)
    return BlockPlan(kernel, points, r, threads, _staged(kernel) if whole else (), online, stages=stages)


def _stages(kernel: Kernel, points: int, device: Device) -> int:
    """For how many turns of the loop over a row loads are under way at once: one where it stores nothing as it goes.

    Else compilers begin no load before the stores in front of it, which might change what it loads. What an earlier
    loop has read is in a cache, and not worth it; nor are two turns, as the loads of one wait for the other.
    """
    loads = {node.attr: node.dtype for node in kernel.nodes if node.op == "load" and node in kernel.inner}
    stored = any(store.space == "inner" for store in kernel.stores)
    if not stored or len(roots_of_loops(kernel)) > 1 or any(index.has_indirect for _, index in loads):
        return 1
    nbytes = points * sum([ITEMSIZE[dtype] for dtype in loads.values()])
    stages = min(device.loop_stages, 1 + device.shared_bytes // device.waves // max(nbytes, 1))
    return stages if stages > 2 else 1


def _shared(size: int, least: int, points: int, device: Device) -> int:
    """A size of blocks, smaller where there would be too few of them."""
    while size > least and pieces_of(points, size) < device.programs:
        size //= 2
    return size


def _row_bytes(kernel: Kernel) -> int:
    loads = [node for node in kernel.nodes if node.op == "load" and node in kernel.inner]
    return hint(kernel.reduce_numel) * sum([ITEMSIZE[load.dtype] for load in loads])


def _staged(kernel: Kernel) -> tuple[Expr, ...]:
    """What a block that has a whole row computes for several loops over it."""
    return tuple([node for node in used_by_several_loops(kernel) if node.op != "const" and node in kernel.inner])
