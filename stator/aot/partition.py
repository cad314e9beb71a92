"""Split a joint graph into forward and backward: what to save, what to recompute.

A minimum cut over the forward values that backward needs: saving a value costs its bytes, inputs are free, recomputing
is free for cheap operators (elementwise, views, casts, creation, random numbers from a seed) and impossible for all
others. A budget below 1 lets expensive operators be recomputed too (`budget.py`). Values inside a checkpointed region
(`node.meta["recompute"]`) are recomputed whatever they cost, except by calls with effects. Values that are
read outside of their region are saved, so that regions are recomputed one at a time.

Invariant: backward reads only what is saved, tangents, the values of symbols, and what it computes from them.
Neighbours: `trace.py` makes the `Joint`; `mincut.py` cuts; `metadata.Saved` tells the runtime where saved values are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import getitem, or_
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from stator.aot import budget as budgets
from stator.aot.budget import Cost, RecomputePlan, bytes_of
from stator.aot.metadata import Look, Metadata, Saved
from stator.aot.mincut import INFINITE, FlowGraph
from stator.aot.symbols import shown
from stator.aot.trace import Joint
from stator.base.effects import Effect
from stator.base.errors import Unsupported
from stator.fake.execute import plan_of
from stator.graphs.calls import effects_of, is_view, may_repeat, root
from stator.graphs.nodes import add_call, copy_call, infer, module

aten = torch.ops.aten

#: Cheap operators that are neither tagged pointwise nor views.
_CHEAP = {
    aten._to_copy.default,
    aten.clone.default,
    aten.full.default,
    aten.full_like.default,
    aten.arange.start_step,
    aten.arange.start,
    aten.arange.default,
    aten.scalar_tensor.default,
    aten.zeros.default,
    aten.ones.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
    aten.constant_pad_nd.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.tril.default,
    aten.triu.default,
    aten.copy.default,
}
#: What one byte costs: a value that forward writes to memory anyway, one that would otherwise stay in registers,
#: one that is a result or an input and so exists in any case.
_WRITTEN, _FUSED, _EXISTING = 1000, 2000, 1
#: Recomputing a long way back costs reads and time: each step to the nearest use in backward adds a tenth.
_PER_STEP, _MOST_STEPS = 1.1, 60
#: How many values in memory, each computed from the one before, are recomputed in a row: they are there at once.
_MOST_LINKS = 4
#: How many times more a byte costs inside a checkpointed region.
_UNWANTED = 1000


@dataclass(slots=True)
class Partitioned:
    """The two graphs and the completed description."""

    forward: fx.GraphModule
    backward: fx.GraphModule | None
    metadata: Metadata


def partition(joint: Joint, budget: float = 1.0, fused: Set[Any] = frozenset()) -> Partitioned:
    """Split the joint graph. `budget` bounds the activation peak, from the lowest possible (0) to the default's (1).

    Where `fused` are the operators that are computed without writing what lies between them, a value is kept that
    others read in both graphs, however cheap it is: it is written in forward anyway, and would be written again. Under
    a budget it is computed again, as memory counts more then.
    """
    effects = {effect.value for node in _acting(joint, "forward") for effect in effects_of(node)}
    metadata = replace(joint.metadata, generators=_generators(joint), effects=tuple(sorted(effects)))
    if not metadata.gradients:
        return Partitioned(_forward(joint, []), None, metadata)
    twice = _written_twice(joint, fused) if fused and budget >= 1 else set()
    choice = _Choice(joint, twice, waiting(joint, fused), reads=bool(fused), anchored=budget >= 1)
    kept = _place(joint, *choice.choose(budget), choice.changing)
    saved = tuple([item.source for item in kept])
    metadata = replace(metadata, saved=saved, looks=tuple(_looks(joint, saved)))
    extra = [item.stored for item in kept if item.source.source == "extra"]
    given = {item.node: item.stored for item in kept}
    return Partitioned(_forward(joint, extra), _backward(joint, list(given), given), metadata)


def is_cheap(node: fx.Node) -> bool:
    """Whether recomputing the node in backward costs little."""
    if node.op != "call_function" or not _may_be_cheap(node.target):
        return False
    return may_repeat(node)


@cache
def _may_be_cheap(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target in _CHEAP or torch.Tag.pointwise in target.tags or target.namespace == "stator":
        return True
    return plan_of(target).view


# ---- choosing --------------------------------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """The nodes to save, in graph order, and what `_needed` says of them."""

    saved: list[fx.Node]
    needed: dict[fx.Node, int]


class _Choice:
    """The cut of one joint graph."""

    def __init__(
        self, joint: Joint, written_twice: Set[fx.Node], in_memory: Set[fx.Node], *, reads: bool, anchored: bool
    ) -> None:
        self.joint, self.written_twice, self.in_memory = joint, written_twice, in_memory
        #: Whether it costs something to read a value that exists in any case.
        self.reads = reads
        #: Inputs and values of the caller that may hold something else when a gradient reads them, without an error.
        self.changing = _changing(joint)
        self.values = set(joint.values)
        self.used = _used_by_backward(joint)
        self.inputs = set(joint.inputs)
        #: What the caller can write to.
        self.held = self.inputs | self.values
        self.order = {node: i for i, node in enumerate(joint.graph.nodes)}
        self.results = _results_of_regions(joint)
        self.written: dict[fx.Node, bool] = {}
        self.anchors = self._anchors() if anchored else set()

    def choose(self, budget: float) -> _Cut:
        """The nodes to save, in graph order."""
        cut = self._cut(RecomputePlan())
        if budget >= 1:
            return cut
        nodes = [n for n in self.order if n.op == "call_function" and n.meta["phase"] == "forward"]
        plans = budgets.plans(nodes, cut.saved, is_cheap)
        cuts = [cut, *[self._cut(plan) for plan in plans[1:]]]
        costs = [self._price(cut.saved) for cut in cuts]
        return cuts[plans.index(budgets.choose(plans, costs, budget))]

    def _price(self, saved: list[fx.Node]) -> Cost:
        """Peak memory and recomputed work if these are saved."""
        exists = {node.name for node in (self.inputs - self.changing)}
        backward = _backward(self.joint, saved).graph
        extra = [node for node in saved if node not in self.inputs - self.changing]
        forward = _forward(self.joint, extra).graph
        most, every = budgets.peaks(backward, lambda node: node.name in exists, is_cheap)
        before = budgets.peaks(forward, lambda node: True, is_cheap)[1]
        again = [n for n in backward.nodes if n.op == "call_function" and n.meta["phase"] == "forward"]
        work = budgets.work(n for n in again if not is_cheap(n))
        return Cost(max(most, before), max(every, before), work)

    def _cut(self, plan: RecomputePlan) -> _Cut:
        """The cheapest nodes to save under a plan, of the caller's tensors none but those that eager looks at."""
        while True:
            saved = self._cheapest(plan)
            needed = _needed(self.joint, saved)
            looked_at = self.joint.looked_at
            pairs = [(memory, needed[node]) for node in saved for memory in (node, root(node))]
            others = {memory for memory, bits in pairs if memory in self.held and bits & ~looked_at.get(memory, 0)}
            if others <= self.changing:
                return _Cut(saved, needed)
            self.changing |= others

    def _cheapest(self, plan: RecomputePlan) -> list[fx.Node]:
        graph = FlowGraph()
        numbers: dict[fx.Node, tuple[int, int]] = {}
        steps = dict.fromkeys(self.used, 0)
        queue = list(self.used)
        for node in queue:
            numbers[node] = graph.node(), graph.node()
            graph.edge(*numbers[node], self._cost(node, steps[node]))
            if self._recomputable(node, plan):
                for parent in node.all_input_nodes:
                    if parent not in steps:
                        steps[parent] = steps[node] + (not is_view(node))
                        queue.append(parent)
            else:
                graph.edge(0, numbers[node][0], INFINITE)
        for node in queue:
            if self._recomputable(node, plan):
                for parent in node.all_input_nodes:
                    graph.edge(numbers[parent][1], numbers[node][0], INFINITE)
        for node in self.used:
            graph.edge(numbers[node][1], 1, INFINITE)
        side = graph.source_side()
        return sorted((n for n, (a, b) in numbers.items() if a in side and b not in side), key=self.order.__getitem__)

    def _recomputable(self, node: fx.Node, plan: RecomputePlan) -> bool:
        if node.op == "placeholder" or node in plan.pinned:
            return False
        if node in self.results:
            return is_view(node)
        made = node.args[0] if node.target is getitem else node
        return (
            (is_cheap(node) and node not in self.written_twice and node not in self.anchors)
            or made in plan.allowed
            or (isinstance(made, fx.Node) and _marked(made))
        )

    def _anchors(self) -> set[fx.Node]:
        """Values that end a long run of others: a residual stream, of which each layer's backward reads one.

        The last of them is read first, so recomputing it has all of the stream in memory, which is not made up for by
        saving the terms that are added to it, though they are of half type.
        """
        links: dict[fx.Node, int] = {}
        found: set[fx.Node] = set()
        for node in self.order:
            if node.op != "call_function" or node.meta["phase"] != "forward" or not is_cheap(node):
                continue
            count = max([links.get(parent, 0) for parent in node.all_input_nodes], default=0)
            count += not is_view(node) and self._is_written(node)
            if count == _MOST_LINKS:
                found.add(node)
            links[node] = count % _MOST_LINKS
        return found

    def _cost(self, node: fx.Node, steps: int) -> int:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return INFINITE
        memory = root(node)
        if memory.op == "placeholder" and memory not in self.changing:
            # Through a view, an input is reached for free; saving the view itself would only add a name.
            return _EXISTING * (bytes_of(memory) + 1) + (0 if node is memory else 1)
        if node in self.values and node not in self.changing:
            return _EXISTING * (bytes_of(node) if self.reads else 1)
        # A saved view keeps all of its memory alive, so it costs that, and a little more than the memory itself.
        bytes_, extra = (bytes_of(node), 0) if memory is node else (bytes_of(memory), 1)
        waits = memory in self.in_memory and memory not in self.held
        lies = waits or self._is_written(memory)
        factor = (_WRITTEN if lies else _FUSED) * _PER_STEP ** min(steps, _MOST_STEPS)
        if _marked(memory) and memory not in self.results:
            factor *= _UNWANTED
        return int((bytes_ + 1) * factor) + extra

    def _is_written(self, memory: fx.Node) -> bool:
        """Whether the value is likely to lie in memory, whoever saves it; asked again for each of its views."""
        known = self.written.get(memory)
        if known is None:
            copied = memory in self.held  # which is written to what is kept alone
            known = self.written[memory] = not copied and not all(map(is_cheap, (memory, *memory.users)))
        return known


def _used_by_backward(joint: Joint) -> list[fx.Node]:
    """The forward nodes and inputs that backward nodes read, and gradients that are forward values."""
    tangents = set(joint.tangents)
    used: dict[fx.Node, None] = {}
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.meta["phase"] == "backward":
            for parent in node.all_input_nodes:
                if parent.meta["phase"] == "forward" and parent not in tangents:
                    used[parent] = None
    for gradient in joint.gradients:
        if gradient is not None and gradient.meta["phase"] == "forward":
            used[gradient] = None
    return list(used)


def _written_twice(joint: Joint, fused: Set[Any]) -> set[fx.Node]:
    """The forward values, no views, that others than fused operators read in forward and in backward."""
    read: dict[str, set[fx.Node]] = {"forward": set(), "backward": set()}
    for node in reversed(joint.graph.nodes):
        if node.op != "call_function" or node.target is getitem:
            continue
        if not is_view(node):
            if node.target not in fused:
                read[node.meta["phase"]].update(node.all_input_nodes)
            continue
        for known in read.values():
            if node in known:
                known.update(node.all_input_nodes)
    return {node for node in read["forward"] & read["backward"] if not is_view(node)}


def waiting(joint: Joint, fused: Set[Any]) -> set[fx.Node]:
    """The cheap forward values that fused operators read only after an operator that is not fused has run.

    Such a value lies in memory meanwhile, as a residual stream does while each layer computes what is added to it. If
    it takes fewer bytes to read what it is computed from, it is no such value: then it is computed where it is read.
    """
    found: set[fx.Node] = set()
    if not fused:
        return found
    nodes = [n for n in joint.graph.nodes if n.op != "call_function" or n.meta["phase"] == "forward"]
    done: dict[fx.Node, int] = {}  # how many operators that are not fused must have run before the value is there
    for node in nodes:
        alone = node.op == "call_function" and node.target not in fused and node.target is not getitem
        before = [done.get(parent, 0) for parent in node.all_input_nodes]
        done[node] = max(before, default=0) + (alone and not is_view(node))
    sources: dict[fx.Node, frozenset[fx.Node]] = {}  # the values in memory from which it is computed
    for node in nodes:
        itself = frozenset({node})
        if node.op != "call_function" or node.target is getitem or not is_cheap(node):
            sources[node] = itself
            continue
        sources[node] = frozenset().union(*[sources.get(parent, itself) for parent in node.all_input_nodes])
        waits = not is_view(node) and any(done.get(user, 0) > done[node] for user in _readers(node))
        if waits and sum(map(bytes_of, sources[node])) > bytes_of(node):
            found.add(node)
            sources[node] = itself
    return found


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Who reads a value, by itself or by a view of it."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        else:
            yield user


def _results_of_regions(joint: Joint) -> set[fx.Node]:
    """The values of checkpointed regions that are read outside of them, and what these are views of."""
    values = set(joint.values)
    found: set[fx.Node] = set()
    for node in reversed(joint.graph.nodes):
        region = node.meta.get("recompute")
        if region is not None and (
            node in values
            or any(user.meta.get("recompute") != region and user.meta.get("phase") == "forward" for user in node.users)
            or any(user in found and is_view(user) for user in node.users)
        ):
            found.add(node)
    return found


def _marked(node: fx.Node) -> bool:
    """Whether the node is in a checkpointed region, and can be recomputed."""
    return "recompute" in node.meta and may_repeat(node)


# ---- building --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    """A value that backward reads, the node that forward stores for it, and where the runtime finds that."""

    node: fx.Node
    stored: fx.Node
    source: Saved


def _place(joint: Joint, saved: list[fx.Node], needed: dict[fx.Node, int], changing: set[fx.Node]) -> list[_Kept]:
    """Where each saved node is kept; copies of what may be overwritten before backward."""
    inputs = {node: i for i, node in enumerate(joint.inputs)}
    values: dict[fx.Node, int] = {}
    for i, node in enumerate(joint.values):
        values.setdefault(node, i)
    exposed = {root(node) for node in joint.values}
    numbers = joint.metadata.differentiable
    kept: list[_Kept] = []
    extras = 0
    for node in saved:
        stored, memory = node, root(node)
        if node in inputs and node not in changing:
            source = Saved("input", inputs[node])
        elif node in values and node not in changing:
            source = Saved("value", values[node])
        else:
            # The caller may write to results and to some inputs, forward itself to others: such memory is copied.
            if memory in changing or memory in exposed:
                stored = _copy(joint, node)
            source = Saved("extra", extras)
            extras += 1
        readers = tuple([number for k, number in enumerate(numbers) if needed[node] >> k & 1])
        kept.append(_Kept(node, stored, replace(source, needed=readers)))
    return kept


def _changing(joint: Joint) -> set[fx.Node]:
    """The caller's tensors that eager's backward never looks at, and inputs that the program itself writes to."""
    held = {node for node in (*joint.inputs, *joint.values) if isinstance(node.meta["val"], torch.Tensor)}
    return (held - joint.looked_at.keys()) | {joint.inputs[i] for i in joint.metadata.overwritten}


def _needed(joint: Joint, saved: Iterable[fx.Node]) -> dict[fx.Node, int]:
    """For each value that backward reads or computes again, as bits, the results whose gradients depend on it."""
    kept = set(saved)
    comes = {tangent: 1 << k for k, tangent in enumerate(joint.tangents) if k < len(joint.metadata.tangents)}
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.meta["phase"] == "backward":
            comes[node] = reduce(or_, [comes.get(parent, 0) for parent in node.all_input_nodes], 0)
    needed: dict[fx.Node, int] = defaultdict(int)
    for gradient in joint.gradients:
        if gradient is not None and not comes.get(gradient, 0):
            needed[gradient] = -1
    for node in reversed(joint.graph.nodes):
        bits = comes.get(node, 0) or needed[node]
        if bits and node.op == "call_function" and node not in kept:
            for parent in node.all_input_nodes:
                needed[parent] |= bits
    return needed


def _looks(joint: Joint, saved: Sequence[Saved]) -> Iterator[Look]:
    """What backward has to look at by itself: what eager saves and this does not, or what not every gradient reads.

    Of the rest PyTorch sees when it is unpacked that it was written to. If some of that is not read by every gradient,
    unpacking does not tell which it was, and everything is looked at; so it is if some may be unpacked later.
    """
    numbers = joint.metadata.differentiable
    places = [("input", i, node) for i, node in enumerate(joint.inputs)]
    places += [("value", i, node) for i, node in enumerate(joint.values)]
    seen = [(source, i, bits) for source, i, node in places if (bits := joint.looked_at.get(node, 0)) > 0]
    unpacked = {(place.source, place.index) for place in saved}
    some = not joint.metadata.one_fate or any(
        bits != (1 << len(numbers)) - 1 for source, i, bits in seen if (source, i) in unpacked
    )
    for source, i, bits in seen:
        if some or (source, i) not in unpacked:
            yield Look(source, i, tuple([number for k, number in enumerate(numbers) if bits >> k & 1]))


def _copy(joint: Joint, node: fx.Node) -> fx.Node:
    """A clone of the node right after it (after the placeholders, for an input)."""
    graph = joint.graph
    after = node if node.op != "placeholder" else [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_after(after):
        clone = add_call(graph, aten.clone.default, (node,), {}, "saved")
    clone.meta.update(node.meta, val=infer(aten.clone.default, (node,), {}))
    return clone


def _forward(joint: Joint, extra: list[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed = _ancestors([*joint.values, *extra, *_acting(joint, "forward")])
    for node in joint.inputs:
        copies[node] = _placeholder(graph, node)
    for node in joint.graph.nodes:
        if node.op == "call_function" and node in needed:
            copies[node] = copy_call(graph, node, copies)
    graph.output(tuple(copies[node] for node in [*joint.values, *extra]))
    return module(graph, "forward")


def _acting(joint: Joint, phase: str) -> list[fx.Node]:
    """The calls with effects, which are made whether their values are read or not."""
    return [n for n in joint.graph.nodes if n.op == "call_function" and n.meta["phase"] == phase and effects_of(n)]


def _generators(joint: Joint) -> tuple[str, ...]:
    """The devices whose generators the forward graph, or the seeds for it, take numbers from."""
    drawing = [node for node in _acting(joint, "forward") if Effect.RANDOM in effects_of(node)]
    results = [value for node in drawing for value in tree_leaves(node.meta["val"])]
    found = {str(value.device) for value in results if isinstance(value, torch.Tensor)}
    return tuple(sorted(found | ({joint.metadata.seed_device} - {""})))


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    needed = set(nodes)
    queue = list(needed)
    for node in queue:
        for parent in node.all_input_nodes:
            if parent not in needed:
                needed.add(parent)
                queue.append(parent)
    return needed


def _backward(joint: Joint, saved: list[fx.Node], given: Mapping[fx.Node, fx.Node] | None = None) -> fx.GraphModule:
    """Backward's nodes in their order, each preceded by what it needs to be computed again.

    `given` is what it gets for each saved node. A copy has no gaps: what is computed from it may lie otherwise as well.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    moved: set[fx.Node] = set()
    for node in [*saved, *joint.tangents]:
        copies[node] = _placeholder(graph, node)
        stored = given.get(node, node) if given is not None else node
        if stored is not node and stored.meta["val"].stride() != node.meta["val"].stride():
            copies[node].meta["val"] = stored.meta["val"]
            moved.add(node)
    for place in joint.metadata.symbols:
        number = graph.placeholder(place.symbol.name)
        number.meta.update(val=shown(place, joint.inputs[place.input].meta["val"]), phase="forward")

    def build(node: fx.Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            if top in copies:
                stack.pop()
                continue
            missing = [parent for parent in top.all_input_nodes if parent not in copies]
            if missing:
                stack.extend(reversed(missing))
                continue
            if top.op == "placeholder":
                raise AssertionError(f"backward needs the input {top} that is not saved")
            copies[top] = copy_call(graph, top, copies)
            if not moved.isdisjoint(top.all_input_nodes):
                moved.add(top)
                _infer_again(copies[top])
            stack.pop()

    results = [gradient for gradient in joint.gradients if gradient is not None]
    needed = _ancestors([*results, *_acting(joint, "backward")])
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.meta["phase"] == "backward" and node in needed:
            build(node)
    for node in results:
        build(node)
    graph.output(tuple(copies[g] if g is not None else None for g in joint.gradients))
    return module(graph, "backward")


def _infer_again(node: fx.Node) -> None:
    """What a call gives whose operands lie in memory otherwise than they did."""
    if node.target is aten.as_strided.default:
        raise Unsupported(node.target, "backward would read the memory between the elements of a tensor that is copied")
    target: Any = node.target
    if target is getitem:
        several, number = node.args
        node.meta["val"] = several.meta["val"][number]  # type: ignore[union-attr]
    else:
        node.meta["val"] = infer(target, node.args, node.kwargs)


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.placeholder(node.name)
    copy.meta.update(node.meta)
    return copy
