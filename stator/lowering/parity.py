"""Nests that compute one of two things in turn, as two nests.

Parts of complex numbers lie in turn in memory, and a loop over both would compute both to choose one. So a nest whose
expression chooses by `index % 2 == 0` (or by an axis of two) becomes one nest for the even positions and one for
the odd ones, in which nothing is chosen; the scheduler joins them into one loop with two writes.

Neighbours: `complex.py` makes such choices (`chosen`), `context.py` and `engine.py` write nests.
"""

from __future__ import annotations

from dataclasses import replace

from stator.loop import expr as e
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis, Index
from stator.loop.nest import Nest


def chosen(at: Index, even: Expr, odd: Expr) -> Expr:
    """What stands at a position of a dim of two."""
    return e.op("where", e.op("eq", e.index(at), e.const(0, "i64")), even, odd)


def halves(nest: Nest) -> list[Nest]:
    """The nest, or two that do its work."""
    axis = _alternating(nest)
    if axis is None:
        return [nest]
    half = Axis(axis.name, axis.size // 2)
    axes = tuple([half if a is axis else a for a in nest.axes if a is not axis or half.size != 1])
    found = []
    for part in (0, 1):
        mapping = {axis: (half.index * 2 if half.size != 1 else Index.of(0)) + part}
        value, position = nest.value.substitute(mapping), nest.index.substitute(mapping)
        found.append(replace(nest, axes=axes, value=value, index=position))
    return found


def _alternating(nest: Nest) -> Axis | None:
    """The axis along which the expression chooses in turn, if it has an even number of steps."""
    axes = [axis for axis in nest.axes if type(axis.size) is int and axis.size % 2 == 0]
    if not axes:
        return None
    for node in postorder([nest.value]):
        if node.op != "eq" or node.args[0].op != "index" or node.args[1].op != "const":
            continue
        for axis in axes:
            if node.args[0].attr is axis.index % 2:
                return axis
    return None
