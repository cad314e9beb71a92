"""Apply: the plan's groups as kernels. Mechanical: whether it is legal was decided before.

Members of a group are taken in program order, their axes replaced by the group's. A load of a buffer that the group
makes becomes the expression that makes it (with the cast to the buffer's dtype in it); a store that nobody outside
reads is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from stator.loop.canonical import Draft, canonical, length
from stator.loop.deps import Facts
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.fusion import Group, escapes
from stator.loop.index import Axis, Index
from stator.loop.kernel import Call, Kernel, Launch, Pointer, Step, Store
from stator.loop.nest import Extern, Operator
from stator.loop.rounding import without_roundings

#: A buffer, and the position where only one element of it is read.
Place: TypeAlias = tuple[str, int | None]
#: By the form of a group without names: the launch of one such group, and its places in order.
Launches: TypeAlias = dict[tuple[Any, ...], tuple[Launch, list[Place]]]


def step(group: Group, facts: Facts, known: Launches, rounds: bool = True) -> Step:
    """The launch or call that runs a group.

    A kernel `rounds` between its operators as eager does, or where that is shown alone.
    Groups that differ in the names of their buffers alone have one kernel, which is made for the first of them.
    """
    node = facts.node(group.members[0])
    if isinstance(node, Extern):
        return Call(node) if node.kernel is None else _launch_of(node, node.kernel)
    form, places = _form(group, facts)
    if form not in known:
        known[form] = _launch(group, facts, rounds), places
    launch, others = known[form]
    own = dict(zip(others, places, strict=True))
    operators = [operator for member in group.members for operator in facts.nests[member].nest.operators]
    args = tuple([_pointer(pointer, own) for pointer in launch.args])
    return replace(launch, args=args, operators=tuple(dict.fromkeys(operators)))


def _launch_of(node: Extern, kernel: Kernel) -> Launch:
    """The launch of a kernel that is no nest."""
    args = [Pointer(buffer.name) for buffer in node.outputs]
    for view in reversed(node.views()):
        assert type(view.offset) is int, "an address is a constant number of elements behind a buffer's first"
        args.insert(0, Pointer(view.buffer, view.offset))
    return Launch(kernel, tuple(args), node.sizes, operators=(Operator(node.target.removeprefix("stator.")),))


def _pointer(pointer: Pointer, own: Mapping[Place, Place]) -> Pointer:
    """The address of what has the place of another group's buffer or element."""
    if (found := own.get((pointer.buffer, None))) is not None:
        return Pointer(found[0], pointer.offset)
    name, position = own[pointer.buffer, pointer.offset]
    return Pointer(name, position or 0)


def _form(group: Group, facts: Facts) -> tuple[tuple[Any, ...], list[Place]]:
    """All that a group's kernel follows from, with numbers for places; and these, in the order of their numbers."""
    buffers, known = facts.program.buffers, _known_elements(group, facts)
    numbers: dict[Place, int] = {}
    form: list[Any] = [group.space, group.ordered]
    for member in group.members:
        found, mapping = facts.nests[member], group.maps[member]
        nest, name = found.nest, found.nest.buffer.name
        order: dict[Expr, int] = {}
        for node in found.nodes:
            order[node] = len(order)
            if node.op == "load":
                buffer, index = node.attr
                place, index = ((buffer, index.const), None) if buffer in known else ((buffer, None), index)
                form.append((numbers.setdefault(place, len(numbers)), index, node.dtype))
            elif node.args:
                form.append((node.op, node.dtype, node.attr, *[order[arg] for arg in node.args]))
            else:
                form.append(node)
        form += (order[nest.value], nest.index, nest.mode, numbers.setdefault((name, None), len(numbers)))
        form += (name in facts.special, escapes(name, group.bits, facts), tuple((mapping or {}).items()))
    for name, at in numbers:
        span = buffers[name].span
        form.append((buffers[name].dtype, span if at is None else length(at, span, at)))
    return tuple(form), list(numbers)


def _known_elements(group: Group, facts: Facts) -> set[str]:
    """The buffers of which the group reads elements at known positions and no others."""
    loads = [node.attr for member in group.members for node in facts.nests[member].nodes if node.op == "load"]
    others = {buffer for buffer, index in loads if index.terms or type(index.const) is not int or index.const < 0}
    return {buffer for buffer, _ in loads} - others - group.writes.keys()


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
    return canonical(Draft(group.space, stores, group.ordered), facts.program.buffers, bool(facts.program.symbols))
