"""What strategies ask of a kernel: along which axes its values differ, and which loads lie in their memory.

A value that does not differ along an axis is computed outside of the loop over it. Neighbours: `writing`, and the C++
target, which still decides for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from stator.loop.expr import Expr, postorder
from stator.loop.index import NO_AXES, Axis, FloorDiv, Index, Indirect, Mod
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.sizes import Extent

Axes = frozenset[Axis]


def dependencies(kernel: Kernel) -> dict[Expr, Axes]:
    """For each node the axes along which its value differs; a reduction ends its reduce axes."""
    deps: dict[Expr, Axes] = {}
    reduced = frozenset(kernel.reduce_axes)
    roots: list[Expr] = [atom.expr for store in kernel.stores for atom in store.index.indirects()]  # type: ignore[misc]
    for node in _nodes_of(kernel, roots):
        if node.op in ("load", "index"):
            deps[node] = index_axes(node.attr[1] if node.op == "load" else node.attr, deps)
        elif node.op == "reduce":
            deps[node] = deps[node.args[0]] - reduced
        elif node.op == "scan":
            deps[node] = deps[node.args[0]] | reduced
        else:
            deps[node] = NO_AXES.union(*[deps[arg] for arg in node.args])
    return deps


def _nodes_of(kernel: Kernel, roots: list[Expr]) -> tuple[Expr, ...]:
    return tuple(postorder([*roots, *[store.value for store in kernel.stores]])) if roots else kernel.nodes


def index_axes(index: Index, deps: dict[Expr, Axes]) -> Axes:
    """The axes along which an index differs."""
    if not index.has_indirect:
        return index.axes()
    found: set[Axis] = set()
    for atom, _ in index.terms:
        match atom:
            case Axis():
                found.add(atom)
            case Indirect():
                found |= deps[atom.expr]  # type: ignore[index]
            case FloorDiv() | Mod():
                found |= index_axes(atom.inner, deps)
    return frozenset(found)


def stays_inside(load: Expr, numels: Mapping[str, Extent], ranges: Ranges) -> bool:
    """Whether a load is proved to lie in its memory, of so many elements, whatever masks say."""
    memory, index = load.attr
    return all(ranges.within(atom.expr, atom.bound) for atom in index.indirects()) and index.within(numels[memory])
