"""Apply: the plan's groups as kernels. Mechanical: whether it is legal was decided before.

Members of a group are taken in program order, their axes replaced by the group's. A load of a buffer that the group
makes becomes the expression that makes it (with the cast to the buffer's dtype in it); a store that nobody outside
reads is dropped.
"""

from __future__ import annotations

from dataclasses import replace

from stator.loop.canonical import Draft, canonical
from stator.loop.deps import Facts
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.fusion import Group, escapes
from stator.loop.index import Axis, Index
from stator.loop.kernel import Call, Launch, Step, Store
from stator.loop.nest import Extern
from stator.loop.rounding import without_roundings


def step(group: Group, facts: Facts, rounds: bool = True) -> Step:
    """The launch or call that runs a group; a kernel need not round between its operators if not `rounds`."""
    node = facts.node(group.members[0])
    if isinstance(node, Extern):
        return Call(node)
    return _launch(group, facts, rounds)


def _launch(group: Group, facts: Facts, rounds: bool) -> Launch:
    made: dict[str, Expr] = {}
    stores: list[Store] = []
    reduced = frozenset(group.space.reduce_axes)

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return made.get(buffer) or load(buffer, index, dtype)

    memos: dict[frozenset[tuple[Axis, Index]], dict[Expr, Expr]] = {}
    for member in group.members:
        nest = facts.nests[member].nest
        mapping = group.maps[member] or {}
        rewrite = Rewriter(mapping, on_load, memos.setdefault(frozenset(mapping.items()), {}))
        value, index = rewrite(nest.value), rewrite.index(nest.index)
        name = nest.buffer.name
        if name not in facts.special:
            made[name] = value
        if escapes(name, group.bits, facts):
            space = "outer" if index.axes().isdisjoint(reduced) else "inner"
            stores.append(Store(name, index, value, space, nest.mode))
    if not rounds:
        stores = without_roundings(stores)
    stores.sort(key=lambda store: store.buffer in facts.special)  # what changes an operand comes last
    launch = canonical(Draft(group.space, stores, group.ordered), facts.program.buffers, bool(facts.program.symbols))
    operators = [operator for member in group.members for operator in facts.nests[member].nest.operators]
    return replace(launch, operators=tuple(dict.fromkeys(operators)))
