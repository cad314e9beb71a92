"""Checks that kernels make anyway, or that were made before.

A kernel checks each position at which it reads or writes. So the check of a tensor of positions says nothing more where
a read at them is needed whole, or anything of a write at them. Neighbours: `aot/checks.py` puts checks into graphs,
`lowering/checks.py` makes loops of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch import fx

from stator.fake.overloads import overload
from stator.fake.symbolic import size_of
from stator.graphs.calls import effects_of, is_view
from stator.graphs.checks import CHECK_POSITIONS, CHECKS
from stator.sizes import Extent

#: What reads or writes at positions: (x, dim, positions, …), or (x, positions of each dim, …).
READS = {overload(name) for name in ("index.Tensor", "index_select", "gather")}
WRITES = {
    overload(name)
    for name in (
        *("index_put", "scatter.src", "scatter_add", "scatter_reduce.two"),
        *("index_add", "index_copy", "index_reduce"),
    )
}
#: What may need some elements only of its first operand.
_SOME = READS | {
    overload(name)
    for name in ("slice.Tensor", "select.int", "diagonal", "as_strided", "unfold", "slice_scatter", "constant_pad_nd")
}


class Need(IntEnum):
    """How much of a value is computed."""

    NOTHING = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class RemoveImpliedChecks:
    """`check_positions(i, …); y = index(x, i)`, where y is needed whole  -->  `y = index(x, i)`; of equal ones, one."""

    def __call__(self, graph: fx.Graph) -> int:
        checks = [n for n in graph.nodes if n.op == "call_function" and n.target in CHECKS]
        if not checks:
            return 0
        checked = _checked(graph)
        made: set[Any] = set()
        changes = 0
        for node in checks:
            value, *bounds = node.args
            said = node.target, _origin(value), *[size_of(bound) for bound in bounds]
            if said in made or (node.target is CHECK_POSITIONS and (said[1], said[-1]) in checked):
                graph.erase_node(node)
                changes += 1
            made.add(said)
        return changes


def _checked(graph: fx.Graph) -> set[tuple[fx.Node, Extent]]:
    """The tensors of positions all of which kernels check, with the extents that they are positions in."""
    needs = _needs(graph)
    found: set[tuple[fx.Node, Extent]] = set()
    for node in graph.nodes:
        target: Any = node.target
        if target in READS:
            known = needs[node] is Need.ALL and 0 not in node.meta["val"].shape
        elif target in WRITES:
            known = needs[node] is not Need.NOTHING and 0 not in node.meta["val"].shape
        else:
            continue
        for dim, positions in _positions(node) if known else ():
            size = node.args[0].meta["val"].shape
            found.add((_origin(positions), size_of(size[dim]) if size else 1))
    return found


def _positions(node: fx.Node) -> Iterator[tuple[int, fx.Node]]:
    """The dims in which a call reads or writes at positions, and these."""
    args: Any = node.args
    if isinstance(args[1], int):
        yield args[1], args[2]
        return
    for dim, positions in enumerate(args[1]):
        if positions is not None:
            yield dim, positions


def _origin(node: fx.Node) -> fx.Node:
    """What a view has all elements of."""
    while is_view(node) and node.target not in _SOME:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _needs(graph: fx.Graph) -> dict[fx.Node, Need]:
    needs: dict[fx.Node, Need] = {}
    for node in reversed(graph.nodes):
        needs[node] = max([_need_of(node, user, needs) for user in node.users], default=Need.NOTHING)
    return needs


def _need_of(node: fx.Node, user: fx.Node, needs: dict[fx.Node, Need]) -> Need:
    """How much one user needs of a value."""
    target: Any = user.target
    if target is CHECK_POSITIONS:
        return Need.NOTHING
    if user.op == "output" or effects_of(user):
        return Need.ALL
    if target in _SOME and user.args[0] is node:
        return min(needs[user], Need.SOME)
    return needs[user]
