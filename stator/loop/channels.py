"""Decide: which images have the channel innermost between convolutions.

A convolution that gains by it pays for no conversion alone, and one may lose where kernels beside it gain more (windows
of short rows). So all are turned over at first, with every image that lies between kernels, and whatever is cheaper as
eager has it is turned back, until nothing is: a group of buffers at a time that a call wants alike, its operand and its
result. What it costs then is what kernels move (`traffic`) and what calls take more than in the layout that they like
best (`demands`). An operand that is given, as an input of the graph is, is copied for the call.
Neighbours: `layout` calls `choose`, and applies what is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from stator.base.dtypes import ITEMSIZE
from stator.loop.demands import DEMANDS, Taken, relaid
from stator.loop.digits import Layout
from stator.loop.nest import Buffer, Extern, View
from stator.loop.traffic import TILED, Traffic
from stator.sizes import hint
from stator.sizes.strides import contiguous, same_layout

#: How often all groups are looked at again.
_ROUNDS = 4


class Turned(NamedTuple):
    """The buffers with the channel innermost, the calls (nodes of the program) whose operand is copied to have it so,
    and the bytes that are saved of how many."""

    layouts: dict[str, Layout]
    copies: dict[int, Layout]
    saved: float
    before: float


def innermost(buffer: Buffer) -> Layout | None:
    """The layout of a batch of images, as eager has them, with the channel innermost; None where that is no other."""
    size = buffer.size
    if len(size) != 4 or 1 in size[1:] or not same_layout(size, buffer.stride, contiguous(size)):
        return None
    digits = (size[1], size[2] * size[3])
    return Layout(digits, (1, 0)) if size[0] == 1 else Layout((size[0], *digits), (0, 2, 1))


def whole(view: View, buffer: Buffer) -> bool:
    """Whether a view is all of a buffer, dim for dim."""
    return view.size == buffer.size and view.offset == 0 and same_layout(view.size, view.stride, buffer.stride)


@dataclass(slots=True)
class _Call:
    """A call that takes its first operand with the channel innermost: its cost now and then, and what is copied."""

    number: int
    cost: tuple[float, float]
    copied: Layout | None = None


@dataclass(slots=True)
class _Group:
    """Buffers that only change together, the calls among them, and the kernels that touch them."""

    layouts: dict[str, Layout] = field(default_factory=dict)
    calls: list[_Call] = field(default_factory=list)
    kernels: set[int] = field(default_factory=set)


def choose(traffic: Traffic, free: Mapping[str, Layout], touching: Mapping[str, Iterable[int]]) -> Turned | None:
    """What to turn over so that all costs least; None where nothing is called that may have it so.

    `free` are the images whose layout may be chosen, with the channel innermost.
    """
    groups = _groups(traffic, free)
    if not any(group.calls for group in groups):
        return None
    for group in groups:
        group.kernels = {number for name in group.layouts for number in touching.get(name, ())}
    chosen = {name: layout for group in groups for name, layout in group.layouts.items()}
    turned = [True] * len(groups)
    for _ in range(_ROUNDS):
        changed = False
        for i in reversed(range(len(groups))):
            there, back = _both(chosen, groups[i])
            now = _cost(traffic, groups[i], there, True) - _cost(traffic, groups[i], back, False)
            if (now < 0) is not turned[i]:
                turned[i], chosen, changed = now < 0, there if now < 0 else back, True
        if not changed:
            break
    kernels = set().union(*[group.kernels for group in groups])
    costs = [sum([traffic.cost(number, layouts) for number in kernels]) for layouts in ({}, chosen)]
    costs[0] += sum([call.cost[0] for group in groups for call in group.calls])
    costs[1] += sum([_calls(traffic, group, on) for group, on in zip(groups, turned, strict=True)])
    copies = {call.number: call.copied for g, on in zip(groups, turned, strict=True) if on for call in g.calls}
    return Turned(chosen, {n: made for n, made in copies.items() if made}, costs[0] - costs[1], costs[0])


def _both(chosen: dict[str, Layout], group: _Group) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """What is chosen with a group and without it."""
    return {**chosen, **group.layouts}, {name: x for name, x in chosen.items() if name not in group.layouts}


def _cost(traffic: Traffic, group: _Group, layouts: Mapping[str, Layout], turned: bool) -> float:
    return sum([traffic.cost(number, layouts) for number in group.kernels]) + _calls(traffic, group, turned)


def _calls(traffic: Traffic, group: _Group, turned: bool) -> float:
    """What the calls of a group cost, with the copies that they want."""
    total = sum([call.cost[turned] for call in group.calls])
    copied = [call.number for call in group.calls if call.copied] if turned else []
    return total + sum([_copy(traffic, number) for number in copied])


def _copy(traffic: Traffic, number: int) -> float:
    """What a kernel moves that copies the operand of a call."""
    node = traffic.facts.node(number)
    assert isinstance(node, Extern)
    view = node.views()[0]
    nbytes = prod(map(hint, view.size)) * ITEMSIZE[traffic.facts.program.buffers[view.buffer].dtype]
    return nbytes * (1 + TILED) + traffic.launch


def _groups(traffic: Traffic, free: Mapping[str, Layout]) -> list[_Group]:
    """The images in the order in which they are written, those that a call ties together as one."""
    facts = traffic.facts
    groups = {name: _Group({name: free[name]}) for name in facts.writers if name in free}
    fixed: set[int] = set()  # by identity: what calls demand as it is
    for number in facts.live:
        node = facts.node(number)
        if not isinstance(node, Extern) or node.target not in DEMANDS:
            continue
        source, *others = [view.buffer for view in node.views()]
        fixed.update([id(groups[name]) for name in others if name in groups])  # a weight that was cast
        call = _call(traffic, node, number, free)
        ours = [groups[name] for name in dict.fromkeys((source, node.outputs[0].name)) if name in groups]
        if call is None:
            fixed.update(map(id, ours))
            continue
        for other in ours[:-1]:
            _join(ours[-1], other, groups, fixed)
        ours[-1].calls.append(call)
    return list({id(group): group for group in groups.values() if id(group) not in fixed}.values())


def _join(group: _Group, other: _Group, groups: dict[str, _Group], fixed: set[int]) -> None:
    """Make two groups one."""
    if group is other:
        return
    group.layouts.update(other.layouts)
    group.calls += other.calls
    groups.update(dict.fromkeys(other.layouts, group))
    if id(other) in fixed:
        fixed.add(id(group))


def _call(traffic: Traffic, node: Extern, number: int, free: Mapping[str, Layout]) -> _Call | None:
    """A call as it is and with the channel innermost; None where it is to stay as it is."""
    view, (result, *rest) = node.args[0], node.outputs
    source = traffic.facts.program.buffers[view.buffer]
    layout = innermost(source)
    if rest or layout is None or result.name not in free or not whole(view, source):
        return None
    demand = DEMANDS[node.target]
    now = demand(node, traffic.device)
    called = relaid(node, {source.name: layout, result.name: free[result.name]})
    then: Taken | None = demand(called, traffic.device) if called is not None else None
    if now is None or called is None or then is None:
        return None
    (made,) = called.outputs
    if not same_layout(made.size, made.stride, then.strides[0]):
        return None
    return _Call(number, (now.cost, then.cost), None if source.name in free else layout)
