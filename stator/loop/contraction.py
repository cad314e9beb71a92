"""What is a matrix product: sums over products of two factors, one that differs along rows, one along columns.

    o[b, m, n] = f(sum(left[b, m, k] * right[b, k, n]), …)

A device that multiplies tiles of matrices (`Device.tile_products`) runs such a nest as no other reduction: neither
factor is read more often than once for a tile. So only what leaves it one may share its kernel. Each factor may be any
expression, which is computed where its elements are loaded; half types are multiplied as they are, since their product
is exact in float32. Axes along which both factors differ are batches. Sizes may be symbolic.
Neighbours: `fusion` keeps contractions what they are, `kernel/matmul.py` decides how one runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis
from stator.loop.space import loops
from stator.sizes import hint

#: Results of a batch from which on tiles are worth it; a tile has 256 at least.
RESULTS = 64
#: The dtypes that factors may have.
MULTIPLIED = ("bf16", "f16", "f32")


@dataclass(frozen=True, slots=True)
class Contraction:
    """Sums of products, each with its factors, that of the rows first; `dtype` is that in which they are multiplied."""

    sums: tuple[tuple[Expr, Expr, Expr], ...]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    dtype: str


def contraction(values: Iterable[Expr], axes: Sequence[Axis], reduce_axes: Sequence[Axis]) -> Contraction | None:
    """What expressions over these axes are as one product, or as several that share rows and columns."""
    nodes = postorder(list(values))
    sums = [node for node in nodes if node.op == "reduce"]
    outer = [axis for axis in axes if loops(axis)]
    terms = tuple([axis for axis in reduce_axes if loops(axis)])
    if not sums or not terms or any(node.op == "scan" for node in nodes):
        return None
    found = [factors(node) for node in sums]
    if any(pair is None for pair in found):
        return None
    (left, right), *others = [pair for pair in found if pair is not None]
    batch = tuple([axis for axis in outer if axis in left.axes and axis in right.axes])
    rows = tuple([axis for axis in outer if axis in left.axes and axis not in right.axes])
    columns = tuple([axis for axis in outer if axis in right.axes and axis not in left.axes])
    if not rows or not columns or len(batch) + len(rows) + len(columns) != len(outer):
        return None
    if hint(prod([axis.size for axis in (*rows, *columns)])) < RESULTS:
        return None
    pairs = [(left, right)]
    for one, other in others:
        pairs.append((one, other) if not one.axes.isdisjoint(rows) else (other, one))
    wanted = frozenset((*batch, *terms))
    for one, other in pairs:
        if one.axes & frozenset(outer) != frozenset((*batch, *rows)) or not frozenset(terms) <= one.axes & other.axes:
            return None
        if other.axes & frozenset(outer) != frozenset((*batch, *columns)) or not wanted <= one.axes & other.axes:
            return None
    if len({factor.dtype for pair in pairs for factor in pair}) > 1 or left.dtype not in MULTIPLIED:
        return None
    made = [(node, *pair) for node, pair in zip(sums, pairs, strict=True)]
    return Contraction(tuple(made), batch, rows, columns, terms, left.dtype)


def factors(node: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a sum of products of float32, before a conversion that is exact."""
    if node.attr != "sum" or node.dtype != "f32" or node.level != 1 or node.args[0].op != "mul":
        return None
    left, right = map(narrow, node.args[0].args)
    if left.dtype != right.dtype:
        left, right = node.args[0].args
    return left, right


def narrow(factor: Expr) -> Expr:
    """The half-precision value that a factor is a conversion of."""
    if factor.op == "cast" and factor.args[0].dtype in ("bf16", "f16"):
        return factor.args[0]
    return factor
