"""Decide: how the buffers between kernels lie in memory.

Strides are given of inputs and outputs, and of what an extern takes and gives, as it was traced; `DEMANDS` says of some
that they take and give others. Those of all other buffers are chosen. A `Layout` takes the positions in a dense buffer
apart into digits (its dims, or parts of them that somebody walks along) and puts these in another order:
    b: f32[64, 2], read as b[2*i] and b[2*i + 1]   -->   b: f32[64, 2] @ [1, 64], read as b[i] and b[i + 64]
`decide` looks at a fusion plan, so at what is really in memory, and compares what its kernels move: each has an axis
that it is fastest along, where what is not contiguous counts several times. A layout is taken if that is clearly less;
all else stays as eager has it. `apply` rewrites the nests, and `settle` fuses them again and looks whether it is less.
Neighbours: `schedule` calls `settle`; `fusion` makes the plans; who lowers an extern may enter it in `DEMANDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeAlias

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.loop import fusion
from stator.loop.deps import Facts, analyse
from stator.loop.expr import Expr, Rewriter, load, postorder
from stator.loop.fusion import FusionPlan, escapes
from stator.loop.index import ZERO, Axis, FloorDiv, Index, Mod
from stator.loop.nest import Argument, Buffer, Extern, Nest, Program, View
from stator.loop.space import AxisMap, loops
from stator.sizes import Extent, hint
from stator.sizes.strides import Shape, contiguous, is_dense, same_layout

#: How many times as long an access takes as a contiguous one: of every second element, of elements that share lines of
#: the cache with others, of one in each line; and of what is loaded in tiles, as another axis is contiguous.
SECOND, NEAR, FAR, TILED = 1.25, 4.0, 6.0, 2.0
#: Elements of a line; the shortest axis that tiles are made along.
LINE, SHORTEST = 16, 8
#: What part of the cost must go for a layout to be taken, and how many times what starting a kernel costs.
CLEARLY, LAUNCHES = 0.05, 2

#: What an extern's results lie like (their strides) if it is called as given; None if it demands what was traced.
Demand: TypeAlias = Callable[[Extern], "tuple[Shape, ...] | None"]
#: By target; an operator that is not here demands what was traced.
DEMANDS: dict[str, Demand] = {}


@dataclass(frozen=True, slots=True)
class Layout:
    """Digits of the positions in a dense buffer, the largest place first, and the order in which they are to lie."""

    digits: Shape
    order: tuple[int, ...]

    @property
    def stride(self) -> Shape:
        """How far apart neighbours in each digit lie."""
        found = dict(zip(self.order, contiguous([self.digits[d] for d in self.order]), strict=True))
        return tuple([found[d] for d in range(len(found))])

    def index(self, position: Index) -> Index:
        """Where that lies which lay at a position.

        The first digit is what is left; its remainder is taken only where bounds would not show else what they showed.
        """
        moved, rest = ZERO, position
        for n, step in zip(self.digits[:0:-1], self.stride[:0:-1], strict=True):
            moved = moved + rest % n * step
            rest = rest // n
        found, numel = moved + rest * self.stride[0], prod(self.digits)
        if position.within(numel) and not found.within(numel):
            return moved + rest % self.digits[0] * self.stride[0]
        return found

    def view(self, size: Shape, stride: Shape, offset: Extent = 0) -> tuple[Shape, Extent] | None:
        """Strides and offset by which a view has the same elements, if there are any."""
        axes = [Axis(f"v{d}", n) for d, n in enumerate(size)]
        position = Index.of(offset)
        for axis, step in zip(axes, stride, strict=True):
            position = position + axis.index * step
        moved = self.index(position)
        if not moved.is_linear():
            return None
        steps = [moved.coefficient(axis) if loops(axis) else step for axis, step in zip(axes, stride, strict=True)]
        return tuple(steps), moved.const

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer as it lies then; its digits are its dims where its own are torn apart."""
        found = self.view(buffer.size, buffer.stride)
        if found is None:
            return replace(buffer, size=self.digits, stride=self.stride)
        return replace(buffer, stride=found[0])


Layouts: TypeAlias = Mapping[str, Layout]
#: By how much a step of each axis moves an access (0 for others), None where that is not constant; symbols by hint.
_Steps: TypeAlias = dict[Axis, "int | None"]
#: Accesses, and how the axes walk along them.
_Moved: TypeAlias = "list[tuple[_Access, _Steps]]"


class Choice(NamedTuple):
    """What was chosen for a buffer, and why: the bytes it is estimated to save, or for which other one's sake."""

    buffer: Buffer
    layout: Layout
    why: str

    def text(self) -> str:
        """One line: `layout b: f32[64, 2] @ [1, 64] instead of [64, 2] @ [2, 1]: 768 bytes less`."""
        old, now = self.buffer, self.layout.buffer(self.buffer)
        lies = f"{list(now.size)} @ {list(now.stride)} instead of {list(old.size)} @ {list(old.stride)}"
        return f"layout {now.name}: {now.dtype}{lies}: {self.why}"


def settle(plan: FusionPlan, device: Device) -> tuple[FusionPlan, tuple[Choice, ...]]:
    """The plan with the layouts that pay, and these; the same plan where there are none."""
    chosen = decide(plan, device)
    if not chosen:
        return plan, ()
    changed = apply(plan.facts.program, {choice.buffer.name: choice.layout for choice in chosen})
    better = fusion.decide(analyse(changed), device)
    before, after = _Traffic(plan, device), _Traffic(better, device)
    return (better, tuple(chosen)) if after.total() < before.total() else (plan, ())


# -- analyse: which buffers are free, and what kernels move ------------------------------------------


def free(facts: Facts) -> dict[str, Shape]:
    """The buffers whose strides nobody outside of the kernels relies on, and the digits of their positions."""
    program = facts.program
    externs = [node for number in facts.live if isinstance(node := facts.node(number), Extern)]
    bound = [extern for extern in externs if extern.target not in DEMANDS]
    demanded = {view.buffer for extern in bound for view in extern.views()}
    demanded.update([buffer.name for extern in bound for buffer in extern.outputs])
    given = facts.kept | {buffer.name for buffer in program.inputs} | demanded
    found: dict[str, Shape] = {}
    for name in facts.writers:
        buffer = program.buffers[name]
        if name in given or buffer.opaque or 0 in buffer.size or not is_dense(buffer.size, buffer.stride):
            continue
        digits = _digits(buffer, _places(name, facts))
        if len(digits) > 1:
            found[name] = digits
    return found


def _places(name: str, facts: Facts) -> Iterator[Extent]:
    """The steps of all that walks along a buffer."""
    for number in (*facts.writers[name], *facts.readers.get(name, ())):
        nest = facts.nests.get(number)
        if nest is not None:
            indices = [nest.nest.index] if nest.nest.buffer.name == name else []
            yield from [step for index in (*indices, *nest.reads.get(name, ())) for _, step in index.terms]


def _digits(buffer: Buffer, places: Iterable[Extent]) -> Shape:
    """The dims of a buffer, the largest stride first, each divided where places lie in it."""
    wanted = sorted({place for place in places if type(place) is int and place > 1})
    dims = [(step, n) for n, step in zip(buffer.size, buffer.stride, strict=True) if n != 1]
    digits: list[Extent] = []
    for step, n in sorted(dims, key=lambda dim: hint(dim[0])):
        low, whole = step, step * n
        if type(low) is int and type(whole) is int:
            for place in wanted:
                if low < place < whole and place % low == 0 and whole % place == 0:
                    digits.append(place // low)
                    low = place
            n = whole // low
        digits.append(n)
    return tuple(reversed(digits))


@dataclass(slots=True)
class _Access:
    """An access of a group to memory: its bytes, where a nest has it, and how the group's axes come to the nest's."""

    buffer: str
    bytes: float
    tiled: bool  # it is loaded where tiles are possible
    index: Index
    map: AxisMap
    steps: dict[tuple[int, ...], _Steps]  # by the order of the digits: by how much each axis moves it

    def under(self, layout: Layout | None) -> _Steps:
        """The steps with which the group's axes walk along it."""
        key = layout.order if layout is not None else ()
        if key not in self.steps:
            assert layout is not None
            self.steps[key] = _steps(layout.index(self.index).substitute(self.map))
        return self.steps[key]


def _steps(index: Index) -> _Steps:
    found = {axis: index.stride(axis) for axis in index.axes()}
    return {axis: None if step is None else hint(step) for axis, step in found.items()}


class _Traffic:
    """What the kernels of a plan move, in bytes, and along which axis each is fastest."""

    def __init__(self, plan: FusionPlan, device: Device) -> None:
        self.facts = plan.facts
        self.groups = [group for group in plan.groups if group.members[0] in plan.facts.nests]
        #: As many bytes as could be moved instead of starting a kernel.
        self.launch = device.launch_cost * device.bandwidth
        self.lanes = device.vector_bytes // 4
        self.known: dict[int, list[_Access]] = {}
        self.costs: dict[tuple[object, ...], float] = {}

    def accesses(self, number: int) -> list[_Access]:
        """All of a group; what is made and read inside of it is none."""
        if number not in self.known:
            self.known[number] = list(self._accesses(number))
        return self.known[number]

    def _accesses(self, number: int) -> Iterator[_Access]:
        group, buffers, axes = self.groups[number], self.facts.program.buffers, self.axes(number)
        seen: set[tuple[str, Index]] = set()
        for member in group.members:
            facts, mapping = self.facts.nests[member], group.maps[member] or {}
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
                    yield _Access(name, nbytes, in_tiles, index, mapping, {(): _steps(mapped)})

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
        """All of it, with what starting the kernels costs."""
        return sum([self.cost(number, {}) + self.launch for number in range(len(self.groups))])

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
        orders = [(n, x.order) for n, x in layouts.items() if n in group.reads or n in group.writes]
        key = number, *orders
        if key not in self.costs:
            moved = self._moved(number, layouts)
            costs = [self._along(axis, number, moved) for axis in self.axes(number)]
            self.costs[key] = min(costs, default=sum([access.bytes for access, _ in moved]))
        return self.costs[key]

    def ordered(self, number: int, layouts: Layouts, without: str) -> list[Axis]:
        """The axes of a group as all but one of its buffers have them: large strides first, the best one last."""
        moved = self._moved(number, layouts, without)
        axes = self.axes(number)
        reach = {axis: sum([abs(steps.get(axis) or 0) for _, steps in moved]) for axis in axes}
        axes.sort(key=lambda axis: -reach[axis])
        if axes:
            best = min(reversed(axes), key=lambda axis: self._along(axis, number, moved))
            axes.remove(best)
            axes.append(best)
        return axes

    def axes(self, number: int) -> list[Axis]:
        """The loops of a group."""
        space = self.groups[number].space
        return [axis for axis in (*space.axes, *space.reduce_axes) if loops(axis)]

    def _moved(self, number: int, layouts: Layouts, without: str = "") -> _Moved:
        accesses = [access for access in self.accesses(number) if access.buffer != without]
        return [(access, access.under(layouts.get(access.buffer))) for access in accesses]

    def _along(self, axis: Axis, number: int, moved: _Moved) -> float:
        """What accesses cost if an axis is the fast one."""
        least = min(max(self.lanes / self._length(axis, number, moved), 1.0), NEAR)
        total, seen = 0.0, set()
        for access, steps in moved:
            times = _times(steps, axis, access.tiled)
            lines = access.buffer, *steps.items()
            if times == FAR and lines in seen:  # other elements of the same lines
                times = SECOND
            seen.add(lines)
            total += access.bytes * max(times, least)
        return total

    def _length(self, axis: Axis, number: int, moved: _Moved) -> int:
        """How far an axis goes together with those that all accesses walk as one with it, if that is not far."""
        length = hint(axis.size)
        for other in reversed(self.axes(number)):
            if length >= self.lanes:
                break
            pairs = [(steps.get(axis, 0), steps.get(other, 0)) for _, steps in moved]
            if other is not axis and all(a is not None and a * length == b for a, b in pairs):
                length *= hint(other.size)
        return max(length, 1)


def _times(steps: _Steps, axis: Axis, tiled: bool) -> float:
    """How many times as long an access takes along an axis as one that is contiguous."""
    step = steps.get(axis, 0)
    if step is None:
        return NEAR
    if -2 <= step <= 2:
        return SECOND if step in (-2, 2) else 1.0
    if tiled and any(step == 1 and hint(other.size) >= SHORTEST for other, step in steps.items()):
        return TILED
    return NEAR if -LINE < step < LINE else FAR


# -- decide ----------------------------------------------------------------------------------------


def decide(plan: FusionPlan, device: Device) -> list[Choice]:
    """The layouts that make a plan move clearly less, the largest buffers first."""
    decision = _Decision(plan, device)
    buffers = plan.facts.program.buffers
    choices: list[Choice] = []
    for name in sorted(decision.touching, key=lambda name: (-hint(buffers[name].nbytes), name)):
        for other, (layout, why) in decision.best(name).items():
            choices.append(Choice(buffers[other], layout, why))
    return choices


class _Decision:
    """The state of the decision: what may be chosen, and what has been."""

    def __init__(self, plan: FusionPlan, device: Device) -> None:
        self.facts, self.traffic = plan.facts, _Traffic(plan, device)
        self.digits = free(plan.facts)
        self.touching = self.traffic.touching(self.digits)
        self.chosen: dict[str, Layout] = {}

    def best(self, name: str) -> dict[str, tuple[Layout, str]]:
        """Choose the layout of a buffer that saves most, and of those that follow it, if it saves enough."""
        most, found = 0.0, self.chosen
        for layout in self._candidates(name):
            grown = self._grown(name, layout)
            if grown is None:
                continue
            touched = {n for other in grown.keys() - self.chosen.keys() for n in self.touching.get(other, ())}
            before = sum([self.traffic.cost(n, self.chosen) for n in touched])
            saved = before - sum([self.traffic.cost(n, grown) for n in touched])
            if saved > max(most, before * CLEARLY, self.traffic.launch * LAUNCHES):
                most, found = saved, grown
        new = [other for other in found if other not in self.chosen]
        self.chosen = found
        whys = dict.fromkeys(new, f"as {name} does") | {name: f"{most:.0f} bytes less"}
        return {other: (found[other], whys[other]) for other in new}

    def _candidates(self, name: str) -> list[Layout]:
        """What each of the kernels that touch a buffer would like best."""
        excess = sum([self.traffic.excess(number) for number in self.touching[name]])
        if name in self.chosen or excess <= self.traffic.launch * LAUNCHES:
            return []
        found = [self._suiting(name, number, self.chosen) for number in self.touching[name]]
        return list(dict.fromkeys([layout for layout in found if layout is not None]))

    def _suiting(self, name: str, number: int, layouts: Layouts) -> Layout | None:
        """The digits of a buffer in the order of a group's axes, constant ones first; None where that is eager's."""
        rank = {axis: i for i, axis in enumerate(self.traffic.ordered(number, layouts, name))}
        first = next(access for access in self.traffic.accesses(number) if access.buffer == name)
        rest = first.index.substitute(first.map)
        digits, ranks = self.digits[name], []
        for d in reversed(range(len(digits))):
            digit = rest % digits[d] if d else rest
            ranks.append((max([rank.get(axis, -1) for axis in digit.axes()], default=-1), d))
            rest = rest // digits[d]
        layout = Layout(digits, tuple([d for _, d in sorted(ranks)]))
        return layout if layout.order != tuple(range(len(digits))) and self._keeps_simple(name, layout) else None

    def _keeps_simple(self, name: str, layout: Layout) -> bool:
        """Whether no position becomes harder to compute, and none is loaded: what such an access costs is not known."""
        facts = self.facts
        for number in (*facts.writers[name], *facts.readers.get(name, ())):
            nest = facts.nests.get(number)
            if nest is not None:
                own = [nest.nest.index] if nest.nest.buffer.name == name else []
                indices = (*own, *nest.reads.get(name, ()))
                if any(i.has_indirect or _knots(layout.index(i)) > _knots(i) for i in indices):
                    return False
        return True

    def _grown(self, name: str, layout: Layout) -> dict[str, Layout] | None:
        """What is chosen with a layout of a buffer: others that follow it where it would make things worse alone.

        None where somebody demands another one.
        """
        found, waiting = {**self.chosen, name: layout}, [name]
        while waiting:
            current = waiting.pop()
            results = self._results(current, found)
            if results is None:
                return None
            for number in self.touching.get(current, ()):
                if self.traffic.cost(number, found) > self.traffic.cost(number, self.chosen):
                    results.update(self._followers(number, found))
            found.update(results)
            waiting += results
        return found

    def _followers(self, number: int, layouts: Layouts) -> dict[str, Layout]:
        """Layouts with which a group costs less."""
        found: dict[str, Layout] = {}
        for name in dict.fromkeys([access.buffer for access in self.traffic.accesses(number)]):
            if name in self.digits and name not in layouts:
                layout = self._suiting(name, number, {**layouts, **found})
                more = {**layouts, **found}
                if layout and self.traffic.cost(number, {**more, name: layout}) < self.traffic.cost(number, more):
                    found[name] = layout
        return found

    def _results(self, name: str, layouts: Layouts) -> dict[str, Layout] | None:
        """The layouts that results of externs have if operands have these; None where one demands others."""
        found: dict[str, Layout] = {}
        facts = self.facts
        for number in {*facts.writers[name], *facts.readers.get(name, ())}:
            node = facts.node(number)
            if not isinstance(node, Extern):
                continue
            called = relaid(node, layouts)
            strides = None if called is None else DEMANDS[node.target](called)
            if called is None or strides is None:
                return None
            for before, buffer, stride in zip(node.outputs, called.outputs, strides, strict=True):
                if same_layout(buffer.size, buffer.stride, stride):
                    continue
                if before.name not in self.digits or before.name in layouts:
                    return None
                found[before.name] = lying(before, stride)
        return found


def lying(buffer: Buffer, stride: Shape) -> Layout:
    """The layout in which a dense buffer has these strides."""
    dims = sorted([d for d, n in enumerate(buffer.size) if n != 1], key=lambda d: -hint(buffer.stride[d]))
    order = sorted(range(len(dims)), key=lambda d: -hint(stride[dims[d]]))
    return Layout(tuple([buffer.size[d] for d in dims]), tuple(order))


def _knots(index: Index) -> int:
    """How many divisions and remainders it has."""
    parts = [atom.inner for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod)]
    return len(parts) + sum([_knots(part) for part in parts])


# -- apply -----------------------------------------------------------------------------------------


def apply(program: Program, layouts: Layouts) -> Program:
    """The same program, with buffers that lie otherwise."""

    def on_load(name: str, index: Index, dtype: str) -> Expr:
        return load(name, layouts[name].index(index) if name in layouts else index, dtype)

    rewrite = Rewriter({}, on_load)

    def nest(node: Nest) -> Nest:
        index, layout = rewrite.index(node.index), layouts.get(node.buffer.name)
        if layout is not None:
            node = replace(node, buffer=layout.buffer(node.buffer))
            index = layout.index(index)
        return replace(node, value=rewrite(node.value), index=index)

    nodes = [nest(node) if isinstance(node, Nest) else relaid(node, layouts) or node for node in program.nodes]
    return replace(program, nodes=tuple(nodes))


def relaid(extern: Extern, layouts: Layouts) -> Extern | None:
    """The call with operands and results in these layouts; None where strides cannot say where they lie."""
    possible = True

    def argument(value: Argument) -> Argument:
        nonlocal possible
        if isinstance(value, tuple):
            return tuple([argument(item) for item in value])
        if not isinstance(value, View) or value.buffer not in layouts:
            return value
        found = layouts[value.buffer].view(value.size, value.stride, value.offset)
        possible = possible and found is not None
        return value if found is None else replace(value, stride=found[0], offset=found[1])

    args, kwargs = argument(extern.args), tuple([(key, argument(value)) for key, value in extern.kwargs])
    outputs = tuple([layouts[b.name].buffer(b) if b.name in layouts else b for b in extern.outputs])
    if not possible or [b.size for b in outputs] != [b.size for b in extern.outputs]:
        return None
    return replace(extern, args=args, kwargs=kwargs, outputs=outputs)
