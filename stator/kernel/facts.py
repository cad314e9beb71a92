"""What strategies ask of a kernel: along which axes its values differ, and which loads lie in their memory.

A value that does not differ along an axis is computed outside of the loop over it. Neighbours: `writing`, `decisions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stator.loop.expr import Expr, postorder
from stator.loop.extent import less
from stator.loop.index import NO_AXES, Axis, FloorDiv, Index, Indirect, Mod
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.sizes import Extent

Axes = frozenset[Axis]
#: An i32 is less.
INT32 = 2**31


def dependencies(kernel: Kernel) -> dict[Expr, Axes]:
    """For each node the axes along which its value differs; a reduction ends its reduce axes."""
    deps: dict[Expr, Axes] = {}
    reduced = frozenset(kernel.reduce_axes)
    roots: list[Expr] = [atom.expr for store in kernel.stores for atom in store.index.indirects()]  # type: ignore[misc]
    for node in postorder([*roots, *[store.value for store in kernel.stores]]) if roots else kernel.nodes:
        if node.op in ("load", "index"):
            deps[node] = index_axes(node.attr[1] if node.op == "load" else node.attr, deps)
        elif node.op == "reduce":
            deps[node] = deps[node.args[0]] - reduced
        elif node.op == "scan":
            deps[node] = deps[node.args[0]] | reduced
        else:
            deps[node] = NO_AXES.union(*[deps[arg] for arg in node.args])
    return deps


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


def lane_stride(index: Index, axis: Axis, lanes: int, varies: Callable[[Any], bool]) -> Extent | None:
    """By how much a lane moves an index within a block of lanes along an axis, or None where that is not constant.

    Blocks begin at multiples of the lanes; `varies` says whether what an index loads is different in them.
    """
    total: Extent = 0
    for atom, coefficient in index.terms:
        match atom:
            case Axis():
                total += coefficient if atom is axis else 0
            case Indirect():
                if varies(atom.expr):
                    return None
            case FloorDiv() | Mod():
                inner = lane_stride(atom.inner, axis, lanes, varies)
                if inner == 0:
                    continue
                # a block that starts at a multiple of its span never crosses a multiple of the divisor
                if inner is None or less(inner, 0) or atom.divisor % (span := lanes * inner) != 0:
                    return None
                if type(span) is not int or atom.inner.coefficient(axis) != inner:
                    return None
                if not (atom.inner - axis.index * inner).divisible_by(span):
                    return None
                total += coefficient * inner if isinstance(atom, Mod) else 0
    return total
