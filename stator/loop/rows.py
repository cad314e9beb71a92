"""Decide: a row that a small kernel makes for other small ones alone is made by each of their programs itself.

    k0: n[i] = x[i] / sum(x)
    k1: y[j] = sum(n[i] * w[j, i])      -->     k0: y[j] = sum(x[i] / sum(x) * w[j, i])

A norm before a product with a vector is the usual case. Each program of the second kernel computes what one program of
the first did, which takes less time than to begin a kernel where rows are short and all programs run at once. Nests of
the first get the outer axes of their reader, so that both have the same loops; then fusion decides again.
Neighbours: `repeat` does so with what is pointwise, where that moves fewer bytes; `schedule` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.loop.deps import Facts, NestFacts, analyse
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.fusion import FusionPlan, Group, decide, escapes
from stator.loop.index import Index
from stator.loop.nest import Nest, Program
from stator.loop.space import AxisMap, composed, flat, loops, solve
from stator.sizes import hint
from stator.sizes.strides import contiguous

#: How many kernels may each make the same row at most, and how often it is decided anew.
_READERS, _ROUNDS = 4, 3
#: Operators that take long enough for a kernel of their own.
_LONG = frozenset(("random", "erfinv", "pow", "scan"))


class Row(NamedTuple):
    """The row that a group makes, and how the group's axes come to those of each nest that reads it."""

    group: Group
    buffer: str
    readers: dict[int, AxisMap]


def make_rows_again(plan: FusionPlan, device: Device) -> FusionPlan:
    """The plan in which programs make short rows for themselves; the same object where none does.

    Of rows that are made of others one is taken at a time. What readers would have in memory stays as it is.
    """
    stays: set[str] = set()
    for _ in range(_ROUNDS):
        chosen = _chosen(plan, device, stays)
        if not chosen:
            break
        program, copies = _copied(plan.facts, chosen)
        again = decide(analyse(program), device)
        made = [(name, group) for group in again.groups for name in group.writes if name in copies]
        failed = {copies[name] for name, group in made if escapes(name, group.bits, again.facts)}
        if failed:
            stays |= failed
        elif len(again.groups) < len(plan.groups):
            plan = again
        else:
            break
    return plan


def _chosen(plan: FusionPlan, device: Device, stays: set[str]) -> list[Row]:
    """The groups that can go, but none that another reads, or that reads another."""
    home = {number: group for group in plan.groups for number in group.members}
    taken: list[Row] = []
    changed = set[Group]()
    for group in plan.groups:
        found = _row(group, home, plan.facts, device) if group not in changed else None
        if found is None or found.buffer in stays:
            continue
        readers = {home[number] for number in found.readers}
        if changed.isdisjoint(readers):
            taken.append(found)
            changed |= {group, *readers}
    return taken


def _row(group: Group, home: dict[int, Group], facts: Facts, device: Device) -> Row | None:
    """What a group is for its readers, if they are few and small, and all that it makes for others is one row."""
    if not group.space.reduce_axes or not _plain(group, facts):
        return None
    made = [name for name in group.writes if escapes(name, group.bits, facts)]
    if len(made) != 1 or made[0] in facts.kept or made[0] in facts.special:
        return None
    (name,) = made
    readers = [number for number in facts.readers[name] if home[number] is not group]
    if not 0 < len(readers) <= _READERS or not facts.nests.keys() >= set(readers):
        return None
    found: dict[int, AxisMap] = {}
    for number in readers:
        mapping = _onto(group, name, facts.nests[number])
        if mapping is None or home[number].products or not _pays(group, home[number], facts, device):
            return None
        found[number] = mapping
    return Row(group, name, found)


def _plain(group: Group, facts: Facts) -> bool:
    """Whether each nest of a group makes a buffer of its own, of which others of it read the element at their point."""
    if group.scatters or group.ordered or group.scans or group.parts or group.products:
        return False
    for number in group.members:
        found = facts.nests.get(number)
        if found is None or found.nest.mode != "store" or not _LONG.isdisjoint([node.op for node in found.nodes]):
            return False
        name = found.nest.buffer.name
        if facts.writers[name] != [number] or name in facts.special:
            return False
    return all(index is made for name, made in group.writes.items() for index in group.reads.get(name, ()))


def _onto(group: Group, name: str, reader: NestFacts) -> AxisMap | None:
    """The group's axes in those of a nest that reads its row along all that it reduces; None where it does not."""
    nest, places = reader.nest, set(reader.reads[name])
    if not nest.reduce_axes or nest.mode != "store" or reader.scans or len(places) != 1:
        return None
    space = group.space
    found = solve(group.writes[name], places.pop(), (*space.axes, *space.reduce_axes))
    if found is None:
        return None
    outer, rows = frozenset(nest.axes), [found[axis] for axis in space.axes if loops(axis)]
    reduced = [(axis.size, found[axis]) for axis in space.reduce_axes if loops(axis)]
    alike = reduced == [(axis.size, axis.index) for axis in nest.reduce_axes if loops(axis)]
    return found if alike and all(index.axes() <= outer for index in rows) else None


def _pays(group: Group, reader: Group, facts: Facts, device: Device) -> bool:
    """Whether all programs of a kernel run at once, and make the row in less time than a kernel takes to begin."""
    programs, length = hint(reader.space.numel), hint(group.space.reduce_numel)
    if programs > device.programs or length > device.row_points or type(group.space.reduce_numel) is not int:
        return False
    buffers = facts.program.buffers
    read = [buffers[name] for name in group.reads.keys() - group.writes.keys()]
    row = sum([min(hint(buffer.nbytes), length * ITEMSIZE[buffer.dtype]) for buffer in read])
    return programs * row < device.launch_cost * device.bandwidth


def _copied(facts: Facts, chosen: Sequence[Row]) -> tuple[Program, dict[str, str]]:
    """The program in which each reader has a group's nests to itself, with its own outer axes; and whose copies are of
    which row."""
    taken, copies = set(facts.program.buffers), dict[str, str]()
    instead: dict[int, list[Nest]] = {number: [] for one in chosen for number in one.group.members}
    for group, row, readers in chosen:
        for number, mapping in readers.items():
            reader = facts.nests[number].nest
            names = {made: next(n for i in count() if (n := f"{made}_row{i}") not in taken) for made in group.writes}
            taken.update(names.values())
            copies |= dict.fromkeys(names.values(), row)
            for member in group.members:
                instead[member].append(_made_for(reader, facts.nests[member].nest, group, member, mapping, names))
            place = names[row], flat((*reader.axes, *reader.reduce_axes))
            instead[number] = [replace(reader, value=_reading({row: place})(reader.value))]
    nodes = [new for number, node in enumerate(facts.program.nodes) for new in instead.get(number, [node])]
    return replace(facts.program, nodes=tuple(nodes)), copies


def _made_for(reader: Nest, nest: Nest, group: Group, number: int, found: AxisMap, names: dict[str, str]) -> Nest:
    """A nest of the group over the outer axes of a reader."""
    mapping = composed(group.maps[number], found)
    every = (*reader.axes, *reader.reduce_axes)
    positions = {made: flat(every if _is_whole(made, group) else reader.axes) for made in group.writes}
    whole = _is_whole(nest.buffer.name, group)
    size = tuple([axis.size for axis in (every if whole else reader.axes)]) or (1,)
    buffer = replace(nest.buffer, name=names[nest.buffer.name], size=size, stride=contiguous(size))
    rewrite = _reading({made: (names[made], positions[made]) for made in names}, mapping)
    return replace(
        nest,
        buffer=buffer,
        axes=every if whole else reader.axes,
        reduce_axes=reader.reduce_axes if nest.reduce_axes else (),
        value=rewrite(nest.value),
        index=positions[nest.buffer.name],
    )


def _is_whole(name: str, group: Group) -> bool:
    """Whether a buffer of a group has an element for each point of the axes that it reduces, too."""
    return not group.writes[name].axes().isdisjoint(group.space.reduce_axes)


def _reading(places: dict[str, tuple[str, Index]], mapping: AxisMap | None = None) -> Rewriter:
    """What reads these buffers elsewhere, and has other axes."""

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return load(*places.get(buffer, (buffer, index)), dtype)

    return Rewriter(mapping or {}, on_load, {})
