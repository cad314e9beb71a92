"""Products by a weight that lies in pairs of terms (`base/pairs.py`), as nests: what their factors are.

Where a processor has instructions for such pairs a kernel multiplies blocks of rows and columns, so each factor is read
in whole lines whatever the order of loops is, and results are there with columns side by side.
Neighbours: `traffic` and `layout` decide by it, `kernel/pairs.py` says in what blocks such a kernel goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.base import pairs
from stator.loop.expr import Expr
from stator.loop.index import Axis
from stator.loop.nest import Nest


@dataclass(frozen=True, slots=True)
class Factors:
    """The loads of one product, of its rows and of its columns, and the axis of these."""

    left: Expr
    right: Expr
    columns: Axis


def factors_of(node: Expr, columns: Axis, terms: Axis) -> Factors | None:
    """Of a sum of products of two numbers of bfloat16, of which one lies in pairs.

    Rows of two terms lie as pairs do, but end where they do: which factor is the weight could not be told.
    """
    if node.attr != "sum" or node.dtype != "f32" or node.args[0].op != "mul":
        return None
    loads = [arg.args[0] for arg in node.args[0].args if arg.op == "cast" and arg.args[0].op == "load"]
    if len(loads) != 2 or any(load.dtype != "bf16" or load.attr[1].has_indirect for load in loads):
        return None
    if type(terms.size) is not int or terms.size <= pairs.PAIR:
        return None
    wanted = pairs.place(columns.index, terms.index, terms.size)
    left, right = loads if loads[1].attr[1] is wanted else loads[::-1]
    together = right.attr[1] is wanted and left.attr[1].stride(terms) == 1
    return Factors(left, right, columns) if together else None


def product(nest: Nest) -> Factors | None:
    """What a nest is as such a product."""
    if nest.value.op != "reduce" or len(nest.reduce_axes) != 1:
        return None
    found = [factors_of(nest.value, axis, *nest.reduce_axes) for axis in nest.axes]
    return next((factors for factors in found if factors is not None), None)
