"""Tell: why two nodes of a fusion plan are not one kernel.

The plan is asked as it is in the end: the groups of both, and the same checks that decided. Nothing is decided here,
and nothing is computed before somebody asks.
Neighbours: `fusion` has the checks; the artifact `…_fused.txt` and `stator.explain` print what this tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from stator.loop.deps import written
from stator.loop.fusion import FusionPlan, Group, Refusal
from stator.loop.index import Index
from stator.loop.nest import Extern


class Apart:
    """The pairs of a plan that are not one kernel. Nodes are named by the buffers that they write."""

    __slots__ = ("decision", "facts", "nodes", "plan")

    def __init__(self, plan: FusionPlan) -> None:
        self.plan, self.facts, self.decision = plan, plan.facts, plan.decision
        self.nodes = {name: numbers[0] for name, numbers in plan.facts.writers.items()}

    @property
    def names(self) -> Collection[str]:
        """What may be asked about."""
        return self.nodes.keys()

    def lines(self) -> Iterator[str]:
        """A line for each two groups that were tried and are not one."""
        told: set[frozenset[Group]] = set()
        for pair in self.plan.tried:
            groups = frozenset((self.decision.group[pair.one], self.decision.group[pair.other]))
            if len(groups) == 2 and groups not in told:
                told.add(groups)
                one, other = (self.facts.nests[number].nest.buffer.name for number in (pair.one, pair.other))
                yield f"apart {one} and {other}, which share {pair.buffer}: {self._refused(one, other)}"

    def why(self, one: str, other: str) -> str:
        """Why the nodes that write two buffers are not one kernel, or that they are."""
        numbers = [self.nodes[one], self.nodes[other]]
        for name, number in zip((one, other), numbers, strict=True):
            node = self.facts.node(number)
            if isinstance(node, Extern):
                return f"{name} is what a call of {node.target} gives, and only loops become one kernel"
        first, second = (self.decision.group[number] for number in numbers)
        if first is second:
            return f"{one} and {other} are in one kernel: {self.plan.reason(first) or 'one nest makes both'}"
        shared = [pair.buffer for pair in self.plan.tried if self._joins(pair.one, pair.other, first, second)]
        reason = self._refused(one, other)
        if shared:
            return f"{one} and {other} share {', '.join(dict.fromkeys(shared))} and are apart: {reason}"
        both = sorted(_touched(first) & _touched(second))
        why = f"others that use {', '.join(both)} stand between" if both else "they share no buffer"
        return f"{one} and {other} were not tried, as {why}; if they were: {reason}"

    def _joins(self, one: int, other: int, first: Group, second: Group) -> bool:
        return {self.decision.group[one], self.decision.group[other]} == {first, second}

    def _refused(self, one: str, other: str) -> str:
        """What the checks say of the groups of two nests, which are not one."""
        first, second = (self.decision.group[self.nodes[name]] for name in (one, other))
        refusal = self.decision.refusal(first, second)
        if refusal is None:
            found = self.decision.unify(first, second)
            if found is not None and not self.decision.turns(*found):
                return "nothing forbids it, and joining them saves nothing"
            refusal = Refusal.MAPS if found is None else Refusal.TURNED
        return f"{refusal.value}{self._detail(refusal, first, second)}"

    def _detail(self, refusal: Refusal, one: Group, other: Group) -> str:
        """The numbers and names behind a refusal."""
        device = self.decision.device
        match refusal:
            case Refusal.SIZES | Refusal.FEW_ROWS | Refusal.FEW_COLUMNS | Refusal.WINDOWS | Refusal.COLUMNS:
                return f" ([{one.loops()}] and [{other.loops()}])"
            case Refusal.OPERATIONS:
                return f" ({one.nodes} and {other.nodes}, of {device.max_nodes})"
            case Refusal.BUFFERS:
                return f" ({device.max_params})"
            case Refusal.BETWEEN:
                group = self.decision.between(one, other)
                assert group is not None, "the refusal says that there is one"
                return f": {', '.join(written(self.facts.node(group.members[0])))}"
            case Refusal.MAPS:
                return "".join([f"; {_accesses(name, one, other)}" for name in sorted(_touched(one) & _touched(other))])
        return ""


def _touched(group: Group) -> set[str]:
    return group.reads.keys() | group.writes.keys()


def _accesses(name: str, one: Group, other: Group) -> str:
    """Where each of two groups is in a buffer that they share."""
    places = [f"{_access(name, group)} for [{group.loops()}]" for group in (one, other)]
    return f"{name} is {' and '.join(places)}"


def _access(name: str, group: Group) -> str:
    if name in group.writes:
        return f"made at {_position(group.writes[name])}"
    return f"read at {', '.join(map(_position, group.reads[name]))}"


def _position(index: Index) -> str:
    return "loaded positions" if any(index.indirects()) else str(index)
