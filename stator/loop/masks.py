"""Where loads happen: between which numbers the axes lie under the masks around a load.

A border is a mask around loads that only happen inside of it: only there is a position in an image made of a row and a
column, as a layout takes it apart.
Neighbours: `deps` has these bounds among the facts of a nest, `digits` takes positions apart with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from stator.loop.expr import Expr, postorder
from stator.loop.extent import less
from stator.loop.index import Axis, Index
from stator.sizes import Extent

#: The lowest and the highest value of axes, where they are less than all of the axis. There may be none in between for
#: some values of symbols: no load happens then.
Bounds: TypeAlias = Mapping[Axis, tuple[Extent, Extent]]
#: By buffer and position.
LoadBounds: TypeAlias = dict[tuple[str, Index], Bounds]


def bounds_of_loads(root: Expr) -> LoadBounds:
    """The bounds with which each load under masks happens, those that are known."""
    nodes = postorder([root])
    if all(node.op != "masked" for node in nodes):
        return {}
    around: dict[Expr, Bounds] = {root: {}}
    found: LoadBounds = {}
    for node in reversed(nodes):
        here = around[node]
        if node.op == "load" and here:
            found[node.attr] = here
        for i, child in enumerate(node.children):
            passed = _both(here, narrowed(node.args[0])) if node.op == "masked" and i == 1 else here
            around[child] = _either(around[child], passed) if child in around else passed
    return found


def narrowed(mask: Expr) -> Bounds:
    """What a mask says of single axes where it is true."""
    if mask.op == "and":
        return _both(narrowed(mask.args[0]), narrowed(mask.args[1]))
    if mask.op not in ("lt", "le", "gt", "ge"):
        return {}
    left, right = [_position(value) for value in mask.args]
    if left is None or right is None:
        return {}
    rest = right - left if mask.op in ("lt", "le") else left - right  # it is at least 0, or 1
    if len(rest.terms) != 1:
        return {}
    ((axis, step),) = rest.terms
    if type(axis) is not Axis or type(step) is not int:
        return {}
    least = (1 if mask.op in ("lt", "gt") else 0) - rest.const  # step * axis is at least this
    if step > 0:
        low, high = _narrower((-(-least // step), axis.size - 1), (0, axis.size - 1))
    else:
        low, high = _narrower((0, least // step), (0, axis.size - 1))
    return {} if less(high, low) else {axis: (low, high)}


def _narrower(one: tuple[Extent, Extent], other: tuple[Extent, Extent]) -> tuple[Extent, Extent]:
    """What lies in both, by the bounds of the first where it is not known which are narrower."""
    (low, high), (least, most) = one, other
    return least if less(low, least) else low, most if less(most, high) else high


def _position(value: Expr) -> Index | None:
    if value.op == "index":
        return value.attr
    return Index.of(value.attr) if value.op == "const" and value.dtype == "i64" else None


def _both(one: Bounds, other: Bounds) -> Bounds:
    """Where both hold. Axes between no numbers at all are left as they were: nothing happens there."""
    found = dict(one)
    for axis, bounds in other.items():
        low, high = _narrower(found.get(axis, bounds), bounds)
        if not less(high, low):
            found[axis] = low, high
    return found


def _either(one: Bounds, other: Bounds) -> Bounds:
    """Where one of the two holds; all of an axis where it is not known which bounds are wider."""
    found: dict[Axis, tuple[Extent, Extent]] = {}
    for axis in (axis for axis in one if axis in other):
        (low, high), (least, most) = one[axis], other[axis]
        bottom = low if low == least or less(low, least) else least if less(least, low) else 0
        top = high if high == most or less(most, high) else most if less(high, most) else axis.size - 1
        found[axis] = bottom, top
    return found
