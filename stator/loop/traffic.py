"""What the kernels of a fusion plan move, in bytes, where buffers lie in one layout or another.

Each kernel has an axis that it is fastest along; what is not contiguous there counts several times. A product by a
weight that lies in pairs goes along its columns, and reads its factors in whole lines.
Neighbours: `layout` and `channels` decide by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.loop.demands import taken
from stator.loop.digits import Layout, Layouts
from stator.loop.expr import postorder
from stator.loop.fusion import FusionPlan, escapes
from stator.loop.index import Axis, Index
from stator.loop.masks import Bounds
from stator.loop.nest import Extern
from stator.loop.paired import product
from stator.loop.space import AxisMap, loops
from stator.sizes import hint

#: How many times as long an access takes as a contiguous one: of every second element, of elements that share lines of
#: the cache with others, of one in each line; and of what is loaded in tiles, as another axis is contiguous.
SECOND, NEAR, FAR, TILED = 1.25, 4.0, 6.0, 2.0
#: Elements of a line; the shortest axis that tiles are made along.
LINE, SHORTEST = 16, 8
#: By how much a step of each axis moves an access (0 for others), None where that is not constant; symbols by hint.
Steps: TypeAlias = dict[Axis, "int | None"]
#: Accesses, and how the axes walk along them.
Moved: TypeAlias = "list[tuple[Access, Steps]]"


@dataclass(slots=True)
class Access:
    """An access of a group to memory: its bytes, where a nest has it, and how the group's axes come to the nest's."""

    buffer: str
    bytes: float
    tiled: bool  # it is loaded where tiles are possible
    whole: bool  # it is loaded in whole lines, whatever axis is fast
    index: Index
    bounds: Bounds
    map: AxisMap
    steps: dict[Layout | None, Steps]  # by how much each axis moves it

    def under(self, layout: Layout | None) -> Steps:
        """The steps with which the group's axes walk along it."""
        if layout not in self.steps:
            assert layout is not None
            self.steps[layout] = _steps(layout.index(self.index, self.bounds).substitute(self.map))
        return self.steps[layout]


def _steps(index: Index) -> Steps:
    found = {axis: index.stride(axis) for axis in index.axes()}
    return {axis: None if step is None else hint(step) for axis, step in found.items()}


class Traffic:
    """What the kernels of a plan move, in bytes, and along which axis each is fastest."""

    def __init__(self, plan: FusionPlan, device: Device) -> None:
        self.facts, self.device = plan.facts, device
        self.groups = [group for group in plan.groups if group.members[0] in plan.facts.nests]
        #: As many bytes as could be moved instead of starting a kernel.
        self.launch = device.launch_cost * device.bandwidth
        self.lanes = device.vector_bytes // 4
        self.known: dict[int, list[Access]] = {}
        products = {number: product(facts.nest) for number, facts in plan.facts.nests.items()}
        self.products = {number: factors for number, factors in products.items() if factors is not None}
        self.costs: dict[tuple[object, ...], float] = {}

    def accesses(self, number: int) -> list[Access]:
        """All of a group; what is made and read inside of it is none."""
        if number not in self.known:
            self.known[number] = list(self._accesses(number))
        return self.known[number]

    def _accesses(self, number: int) -> Iterator[Access]:
        group, buffers, axes = self.groups[number], self.facts.program.buffers, self.axes(number)
        seen: set[tuple[str, Index]] = set()
        for member in group.members:
            facts, mapping = self.facts.nests[member], group.maps[member] or {}
            factors = self._factors(member)
            tiled = not group.space.reduce_axes and all(node.op != "masked" for node in postorder([facts.nest.value]))
            ours = [(name, i, tiled) for name, some in facts.reads.items() if name not in group.writes for i in some]
            if escapes(facts.nest.buffer.name, group.bits, self.facts):
                ours.append((facts.nest.buffer.name, facts.nest.index, False))
            for name, index, in_tiles in ours:
                mapped = index.substitute(mapping)
                if (name, mapped) not in seen:
                    seen.add((name, mapped))
                    points = prod([hint(axis.size) for axis in axes if axis in mapped.axes()])
                    nbytes = float(points * ITEMSIZE[buffers[name].dtype])
                    bounds = facts.bounds.get((name, index), {})
                    whole = (name, index) in factors
                    yield Access(name, nbytes, in_tiles, whole, index, bounds, mapping, {None: _steps(mapped)})

    def _factors(self, member: int) -> set[tuple[str, Index]]:
        """The loads of a product that tiles multiply."""
        found = self.products.get(member)
        return {load.attr for load in (found.left, found.right)} if found is not None else set()

    def touching(self, names: Iterable[str]) -> dict[str, list[int]]:
        """The groups that have buffers in memory, for each that is."""
        found: dict[str, list[int]] = {}
        wanted = set(names)
        for number, group in enumerate(self.groups):
            for name in (group.reads.keys() | group.writes.keys()) & wanted:
                if name not in group.writes or escapes(name, group.bits, self.facts):
                    found.setdefault(name, []).append(number)
        return found

    def total(self) -> float:
        """All of it, with what starting the kernels costs, and externs more than in the layout that they like best."""
        calls = [self.extern_cost(node, {}) for n in self.facts.live if isinstance(node := self.facts.node(n), Extern)]
        return sum([self.cost(number, {}) + self.launch for number in range(len(self.groups))]) + sum(calls)

    def extern_cost(self, extern: Extern, layouts: Layouts) -> float:
        """What a call takes more than in the layout that it likes best, where it takes these."""
        found = taken(extern, layouts, self.device)
        return 0.0 if found is None else found.cost

    def excess(self, number: int) -> float:
        """What a group moves more than if all of it were contiguous."""
        group = self.groups[number]
        points = hint(group.space.numel * group.space.reduce_numel)
        if points * (len(group.reads) + len(group.writes)) * max(ITEMSIZE.values()) * FAR < self.launch:
            return 0.0
        return self.cost(number, {}) - sum([access.bytes for access in self.accesses(number)])

    def cost(self, number: int, layouts: Layouts) -> float:
        """What a group moves along the axis that is best for it."""
        group = self.groups[number]
        ours = [(n, layouts[n]) for n in (*group.reads, *group.writes) if n in layouts]
        key = number, *ours
        if key not in self.costs:
            moved = self._moved(number, layouts)
            costs = [self._along(axis, number, moved) for axis in self._fast(number)]
            self.costs[key] = min(costs, default=sum([access.bytes for access, _ in moved]))
        return self.costs[key]

    def ordered(self, number: int, layouts: Layouts, without: str) -> list[Axis]:
        """The axes of a group as all but one of its buffers have them: large strides first, the best one last."""
        moved = self._moved(number, layouts, without)
        axes = self.axes(number)
        reach = {axis: sum([abs(steps.get(axis) or 0) for _, steps in moved]) for axis in axes}
        axes.sort(key=lambda axis: -reach[axis])
        if axes:
            fast = [axis for axis in reversed(axes) if axis in self._fast(number)]
            best = min(fast, key=lambda axis: self._along(axis, number, moved))
            axes.remove(best)
            axes.append(best)
        return axes

    def axes(self, number: int) -> list[Axis]:
        """The loops of a group."""
        space = self.groups[number].space
        return [axis for axis in (*space.axes, *space.reduce_axes) if loops(axis)]

    def _fast(self, number: int) -> list[Axis]:
        """The loops that may be the fast one: all, but where tiles multiply the columns of their results."""
        axes, maps = self.axes(number), self.groups[number].maps
        products = [member for member in maps if member in self.products]
        columns = [self.products[member].columns.index.substitute(maps[member] or {}) for member in products]
        return [axis for axis in axes if any(axis in index.axes() for index in columns)] or axes

    def _moved(self, number: int, layouts: Layouts, without: str = "") -> Moved:
        accesses = [access for access in self.accesses(number) if access.buffer != without]
        return [(access, access.under(layouts.get(access.buffer))) for access in accesses]

    def _along(self, axis: Axis, number: int, moved: Moved) -> float:
        """What accesses cost if an axis is the fast one."""
        least = min(max(self.lanes / self._length(axis, number, moved), 1.0), NEAR)
        total, seen = 0.0, set()
        for access, steps in moved:
            times = 1.0 if access.whole else _times(steps, axis, access.tiled)
            lines = access.buffer, *steps.items()
            if times == FAR and lines in seen:  # other elements of the same lines
                times = SECOND
            seen.add(lines)
            total += access.bytes * max(times, least)
        return total

    def _length(self, axis: Axis, number: int, moved: Moved) -> int:
        """How far an axis goes together with those that all accesses walk as one with it, if that is not far."""
        length = hint(axis.size)
        for other in reversed(self.axes(number)):
            if length >= self.lanes:
                break
            pairs = [(steps.get(axis, 0), steps.get(other, 0)) for _, steps in moved]
            if other is not axis and all(a is not None and a * length == b for a, b in pairs):
                length *= hint(other.size)
        return max(length, 1)


def _times(steps: Steps, axis: Axis, tiled: bool) -> float:
    """How many times as long an access takes along an axis as one that is contiguous."""
    step = steps.get(axis, 0)
    if step is None:
        return NEAR
    if -2 <= step <= 2:
        return SECOND if step in (-2, 2) else 1.0
    if tiled and any(step == 1 and hint(other.size) >= SHORTEST for other, step in steps.items()):
        return TILED
    return NEAR if -LINE < step < LINE else FAR
