"""Iteration spaces and the maps between them: how the loops of one nest run inside the loops of another.

A map gives every axis of the source space as an index of the target space's axes. It is accepted only if it is a
bijection, and sends outer axes to outer axes and reduce axes to reduce axes (a pointwise source may use both, or the
outer ones alone). `maps` proposes them; `fusion` checks that the shared accesses agree, and that no position needs `//`
or `%` for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

from stator.loop.extent import less
from stator.loop.index import ZERO, Axis, Index
from stator.sizes import Extent

AxisMap = dict[Axis, Index]


class Space(NamedTuple):
    """Outer axes, and the axes of reductions."""

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]

    @property
    def numel(self) -> Extent:
        return prod([axis.size for axis in self.axes])

    @property
    def reduce_numel(self) -> Extent:
        return prod([axis.size for axis in self.reduce_axes])


def flat(axes: Iterable[Axis]) -> Index:
    """The row-major position of a point."""
    position = ZERO
    for axis in axes:
        position = position * axis.size + axis
    return position


def maps(source: Space, target: Space, shared: Iterable[tuple[Index, Index]]) -> Iterator[AxisMap]:
    """Maps from source to target; `shared` has pairs (source index, target index) that should come to the same."""
    outer, inner = frozenset(target.axes), frozenset(target.reduce_axes)
    if source.reduce_axes:
        if source.numel != target.numel or source.reduce_numel != target.reduce_numel:
            return
    elif source.numel not in (target.numel, target.numel * target.reduce_numel):
        return
    whole = not target.reduce_axes or source.numel != target.numel or bool(source.reduce_axes)
    seen: list[AxisMap] = []
    for found in _proposals(source, target, shared, whole):
        if found is None or found in seen or not _legal(found, source, outer, inner, whole):
            continue
        seen.append(found)
        yield found


def _proposals(
    source: Space, target: Space, shared: Iterable[tuple[Index, Index]], whole: bool
) -> Iterator[AxisMap | None]:
    axes = source.axes + source.reduce_axes
    used = target.axes + (target.reduce_axes if whole else ())
    for ours, theirs in shared:
        if injective(theirs.substitute(_mirror(theirs)), used):
            yield solve(ours, theirs, axes)
    if source.reduce_axes:
        yield {**unflatten(source.axes, flat(target.axes)), **unflatten(source.reduce_axes, flat(target.reduce_axes))}
    elif not whole or not target.reduce_axes:
        yield unflatten(source.axes, flat(target.axes))
    else:
        rows, columns = flat(target.axes), flat(target.reduce_axes)
        yield unflatten(source.axes, rows * target.reduce_numel + columns)
        yield unflatten(source.axes, columns * target.numel + rows)


def solve(ours: Index, theirs: Index, axes: tuple[Axis, ...]) -> AxisMap | None:
    """The map under which `ours`, a mixed-radix index of all `axes`, equals `theirs`.

    Either may walk some of its axes backwards: it is looked at as if these ran forwards.
    """
    mirror, their_mirror = _mirror(ours), _mirror(theirs)
    forward = ours.substitute(mirror)
    if not injective(forward, axes):
        return None
    position = theirs.substitute(their_mirror) - forward.const
    found = {axis: (position // forward.coefficient(axis)) % axis.size for axis in axes if loops(axis)}
    found |= {axis: (axis.size - 1) - found[axis] for axis in mirror}
    found = {axis: index.substitute(their_mirror) for axis, index in found.items()}
    return found if ours.substitute(found) is theirs else None


def _mirror(index: Index) -> AxisMap:
    """The axes that an index walks backwards, each replaced by its reflection."""
    return {atom: (atom.size - 1) - atom.index for atom, step in index.terms if type(atom) is Axis and less(step, 0)}


def injective(index: Index, axes: tuple[Axis, ...]) -> bool:
    """Whether it is `Σ stride·axis` with strides that keep different points of `axes` apart."""
    if sum([loops(axis) for axis in axes]) != len(index.terms):
        return False
    reach: Extent = 0
    for atom, coefficient in reversed(index.terms):  # the largest stride is first
        if type(atom) is not Axis or not less(reach, coefficient) or atom not in axes:
            return False
        reach += coefficient * (atom.size - 1)
    return True


def loops(axis: Axis) -> bool:
    """Whether it may run more than once."""
    return type(axis.size) is not int or axis.size > 1


def unflatten(axes: tuple[Axis, ...], position: Index) -> AxisMap:
    """The axes at a row-major position."""
    found: AxisMap = {}
    step: Extent = 1
    for axis in reversed(axes):
        if loops(axis):
            found[axis] = (position // step) % axis.size
        step *= axis.size
    return found


def _legal(found: AxisMap, source: Space, outer: frozenset[Axis], inner: frozenset[Axis], whole: bool) -> bool:
    for axis, index in found.items():
        allowed = outer | inner if whole else outer
        if source.reduce_axes:
            allowed = inner if axis in source.reduce_axes else outer
        if not index.axes() <= allowed:
            return False
    return True


def is_linear(found: AxisMap) -> bool:
    """Whether it needs no `//` or `%`."""
    return all(index.is_linear() for index in found.values())


def composed(first: AxisMap | None, second: AxisMap) -> AxisMap:
    """`first`, then `second` (None is the identity)."""
    return second if first is None else {axis: index.substitute(second) for axis, index in first.items()}
