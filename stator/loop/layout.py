"""Decide: how the buffers between kernels lie in memory.

Strides are given of inputs and outputs, and of what an extern takes and gives, as it was traced; `demands` says of some
that they take and give others. Those of all other buffers are chosen.
`decide` looks at a fusion plan, so at what is really in memory, and compares what its kernels move: first for all
images around convolutions together (`channels`), then for each buffer. A layout is taken if that is clearly less; all
else stays as eager has it. `apply` rewrites the nests, and `settle` fuses them again and looks whether it is less.
Neighbours: `schedule` calls `settle`; `fusion` makes the plans; `digits` has layouts, `traffic` what kernels move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from stator.base.device import Device
from stator.loop import channels, fusion, paired
from stator.loop.demands import relaid, taken
from stator.loop.deps import Facts, analyse
from stator.loop.digits import Layout, Layouts, lying
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.fusion import FusionPlan
from stator.loop.index import ZERO, Axis, Index
from stator.loop.masks import bounds_of_loads
from stator.loop.nest import Buffer, Extern, Nest, Node, Program, View
from stator.loop.traffic import Traffic
from stator.sizes import Extent, hint
from stator.sizes.strides import Shape, is_dense, same_layout

#: What part of the cost must go for a layout to be taken, and how many times what starting a kernel costs.
CLEARLY, LAUNCHES = 0.05, 2


class Choice(NamedTuple):
    """What was chosen for a buffer, and why: the bytes it is estimated to save, or for which other one's sake."""

    buffer: Buffer
    layout: Layout
    why: str
    call: int | None = None  # the node that a copy is made for: the buffer is new

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
    copies = {choice.call: choice for choice in chosen if choice.call is not None}
    layouts = {choice.buffer.name: choice.layout for choice in chosen if choice.call is None}
    changed = apply(plan.facts.program, layouts, copies)
    better = fusion.decide(analyse(changed), device)
    before, after = Traffic(plan, device), Traffic(better, device)
    return (better, tuple(chosen)) if after.total() < before.total() else (plan, ())


# -- analyse: which buffers are free, and what kernels move ------------------------------------------


def free(facts: Facts, device: Device) -> dict[str, Shape]:
    """The buffers whose strides nobody outside of the kernels relies on, and the digits of their positions."""
    program = facts.program
    externs = [node for number in facts.live if isinstance(node := facts.node(number), Extern)]
    bound = [extern for extern in externs if taken(extern, {}, device) is None]
    demanded = {view.buffer for extern in bound for view in extern.views()}
    demanded.update([buffer.name for extern in bound for buffer in extern.outputs])
    demanded.update([name for known in facts.nests.values() for name in _paired(known.nest)])
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


def _paired(nest: Nest) -> list[str]:
    """The factors of a product by a weight that lies in pairs: its terms are side by side, or no tile holds them."""
    found = paired.product(nest)
    return [load.attr[0] for load in (found.left, found.right)] if found is not None else []


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


# -- decide ----------------------------------------------------------------------------------------


def decide(plan: FusionPlan, device: Device) -> list[Choice]:
    """The layouts that make a plan move clearly less, the largest buffers first."""
    decision = _Decision(plan, device)
    buffers = plan.facts.program.buffers
    choices = decision.turned()
    for name in sorted(decision.touching, key=lambda name: (-hint(buffers[name].nbytes), name)):
        for other, (layout, why) in decision.best(name).items():
            choices.append(Choice(buffers[other], layout, why))
    return choices


class _Decision:
    """The state of the decision: what may be chosen, and what has been."""

    def __init__(self, plan: FusionPlan, device: Device) -> None:
        self.facts, self.traffic = plan.facts, Traffic(plan, device)
        self.digits = free(plan.facts, device)
        self.touching = self.traffic.touching(self.digits)
        self.chosen: dict[str, Layout] = {}

    def turned(self) -> list[Choice]:
        """Choose for all images together, as `channels` does, if that saves enough."""
        buffers = self.facts.program.buffers
        images = {name: layout for name in self.digits if (layout := channels.innermost(buffers[name]))}
        images = {name: layout for name, layout in images.items() if self._keeps_simple(name, layout)}
        found = channels.choose(self.traffic, images, self.touching)
        if found is None or found.saved <= max(found.before * CLEARLY, self.traffic.launch * LAUNCHES):
            return []
        self.chosen = found.layouts
        why = f"the channel innermost in all of them: {found.saved:.0f} bytes less"
        copies = [Choice(_copied(self.facts, n), layout, why, n) for n, layout in found.copies.items()]
        return [*copies, *[Choice(buffers[name], layout, why) for name, layout in found.layouts.items()]]

    def best(self, name: str) -> dict[str, tuple[Layout, str]]:
        """Choose the layout of a buffer that saves most, and of those that follow it, if it saves enough."""
        most, found = 0.0, self.chosen
        for layout in self._candidates(name):
            grown = self._grown(name, layout)
            if grown is None:
                continue
            before, after = self._costs(grown)
            saved = before - after
            if saved > max(most, before * CLEARLY, self.traffic.launch * LAUNCHES):
                most, found = saved, grown
        new = [other for other in found if other not in self.chosen]
        self.chosen = found
        whys = dict.fromkeys(new, f"as {name} does") | {name: f"{most:.0f} bytes less"}
        return {other: (found[other], whys[other]) for other in new}

    def _costs(self, grown: dict[str, Layout]) -> tuple[float, float]:
        """What all that touches the buffers that are new among the chosen costs, before and after."""
        new = grown.keys() - self.chosen.keys()
        kernels = {n for name in new for n in self.touching.get(name, ())}
        nodes = {n for name in new for n in (*self.facts.writers[name], *self.facts.readers.get(name, ()))}
        calls = [node for n in nodes if isinstance(node := self.facts.node(n), Extern)]
        before, after = [
            sum([self.traffic.cost(n, layouts) for n in kernels])
            + sum([self.traffic.extern_cost(call, layouts) for call in calls])
            for layouts in (self.chosen, grown)
        ]
        return before, after

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
        """Whether no position becomes harder to compute."""
        facts = self.facts
        for number in (*facts.writers[name], *facts.readers.get(name, ())):
            nest = facts.nests.get(number)
            if nest is not None:
                own = [nest.nest.index] if nest.nest.buffer.name == name else []
                indices = (*own, *nest.reads.get(name, ()))
                if any(not layout.keeps_simple(i, nest.bounds.get((name, i), {})) for i in indices):
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
            called, answer = relaid(node, layouts), taken(node, layouts, self.traffic.device)
            if called is None or answer is None:
                return None
            for before, buffer, stride in zip(node.outputs, called.outputs, answer.strides, strict=True):
                if same_layout(buffer.size, buffer.stride, stride):
                    continue
                if before.name not in self.digits or before.name in layouts:
                    return None
                found[before.name] = lying(before, stride)
        return found


# -- apply -----------------------------------------------------------------------------------------


def apply(program: Program, layouts: Layouts, copies: Mapping[int, Choice] = MappingProxyType({})) -> Program:
    """The same program, with buffers that lie otherwise, and copies of the first operands of calls, by their nodes."""

    memo: dict[Expr, Expr] = {}

    def nest(node: Nest) -> Nest:
        bounds = bounds_of_loads(node.value)

        def on_load(name: str, index: Index, dtype: str) -> Expr:
            moved = layouts[name].index(index, bounds.get((name, index), {})) if name in layouts else index
            return load(name, moved, dtype)

        rewrite = Rewriter({}, on_load, {} if bounds else memo)
        index, layout = rewrite.index(node.index), layouts.get(node.buffer.name)
        if layout is not None:
            node = replace(node, buffer=layout.buffer(node.buffer))
            index = layout.index(index)
        return replace(node, value=rewrite(node.value), index=index)

    nodes: list[Node] = []
    for number, node in enumerate(program.nodes):
        if isinstance(node, Nest):
            nodes.append(nest(node))
            continue
        called = relaid(node, layouts) or node
        if number in copies:
            made = copies[number].layout.buffer(copies[number].buffer)
            nodes.append(_copy(called.args[0], made))
            called = replace(called, args=(View(made.name, made.size, made.stride), *called.args[1:]))
        nodes.append(called)
    return replace(program, nodes=tuple(nodes))


def _copied(facts: Facts, number: int) -> Buffer:
    """A buffer like the first operand of a call, for a copy of it."""
    node = facts.node(number)
    assert isinstance(node, Extern)
    source = facts.program.buffers[node.views()[0].buffer]
    return replace(source, name=f"{source.name}_for_{node.outputs[0].name}")


def _copy(view: View, buffer: Buffer) -> Nest:
    """Loops that copy a view into a buffer of the same size."""
    axes = tuple([Axis(f"i{d}", n) for d, n in enumerate(view.size)])
    here, there = Index.of(view.offset), ZERO
    for axis, step, target in zip(axes, view.stride, buffer.stride, strict=True):
        here, there = here + axis.index * step, there + axis.index * target
    return Nest(buffer, axes, (), load(view.buffer, here, buffer.dtype), there)
