"""Decide: that a graph which fails has changed nothing, so that the original can run in its place.

What may fail for its data (a kernel that checks an index, an operator that is not known to take all values) runs before
what writes the caller's memory, wherever the order is free; `waiting` has the order that this adds. Operators that are
code of the program wait as well, so that they do not run in vain and then once more. Where it is not
free, or one kernel does both, the graph keeps a copy of the memory and puts it back when it fails.
An effect that nobody can take back waits like a write; what fails behind it says that something is done for good.
Invariant: before a step that may fail, and in it, nothing is written that is not kept. What is added to kernels as a
check has to be known to `may_fail`. Neighbours: `order.py`, `schedule.py`, `plan/build.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.loop.deps import Facts, written
from stator.loop.expr import postorder
from stator.loop.fusion import Group
from stator.loop.index import Indirect
from stator.loop.kernel import Failure
from stator.loop.nest import Extern, Nest, Node
from stator.loop.ranges import Ranges


def failing(facts: Facts) -> set[int]:
    """The live nodes that may fail; nobody asks where nothing has to wait for them."""
    if not facts.program.mutated and not any(_is_foreign(facts.program.nodes[number]) for number in facts.live):
        return set()
    ranges = Ranges()
    return {number for number in facts.live if may_fail(facts.program.nodes[number], ranges)}


def may_fail(node: Node, ranges: Ranges) -> bool:
    """Whether running a node may raise, whatever sizes and dtypes are."""
    if isinstance(node, Extern):
        return node.fails
    return any(not ranges.within(atom.expr, atom.bound) for atom in _loaded(node))  # type: ignore[arg-type]


def _is_foreign(node: Node) -> bool:
    return isinstance(node, Extern) and node.foreign


def _loaded(nest: Nest) -> list[Indirect]:
    """The loaded integers among the positions of a nest."""
    found = nest.index.indirects()
    for expr in postorder([nest.value, *[atom.expr for atom in found]]):  # type: ignore[list-item]
        if expr.op == "load":
            found += expr.attr[1].indirects()
    return found


def writing(facts: Facts, group: Group) -> list[str]:
    """The memory of the caller that a group writes."""
    if not facts.program.mutated:
        return []
    names = [name for member in group.members for name in written(facts.node(member))]
    return [name for name in names if name in facts.program.mutated]


def waiting(facts: Facts, groups: Sequence[Group], needs: Sequence[set[int]]) -> dict[int, set[int]]:
    """Groups by number → those that may fail, all of which can run before."""
    unsure = failing(facts)
    fails = {i for i, group in enumerate(groups) if not unsure.isdisjoint(group.members)}
    foreign = {i for i, group in enumerate(groups) if _is_foreign(facts.node(group.members[0]))}
    writes = {i for i, group in enumerate(groups) if writing(facts, group)}
    first = fails - _behind(needs, foreign | writes)
    then = (fails & foreign) - _behind(needs, writes)
    return {i: first | then if i in writes else first for i in foreign | writes if first or then}


def _behind(needs: Sequence[set[int]], groups: set[int]) -> set[int]:
    """These groups, and all that have to run after one of them."""
    feeds: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for earlier in before:
            feeds[earlier].append(i)
    found, ready = set(groups), list(groups)
    while ready:
        for later in feeds[ready.pop()]:
            if later not in found:
                found.add(later)
                ready.append(later)
    return found


def plan_failure(facts: Facts, ordered: Sequence[Group]) -> Failure:
    """What is done about failures of groups in this order."""
    unsure = failing(facts)
    writes = [writing(facts, group) for group in ordered]
    end = len(ordered)
    lasts = [isinstance(node := facts.node(group.members[0]), Extern) and node.lasting for group in ordered]
    lasting = lasts.index(True) + 1 if True in lasts else end
    first = next((i for i, names in enumerate(writes) if names), end)
    fails = [i for i, group in enumerate(ordered) if not unsure.isdisjoint(group.members)]
    count = max([i for i in fails if i < lasting], default=-1) + 1
    kept = tuple(dict.fromkeys(name for names in writes[:count] for name in names))
    start = min(max(first, count), lasting)
    called = any(isinstance(facts.node(group.members[0]), Extern) for group in ordered[start:])
    called = called or (start == lasting and any(i >= start for i in fails))
    return Failure(kept, count if kept else 0, start if called else None)
