"""Roundings that a kernel may leave out under `numerics="fast"`: what is rounded to a half type between its operators.

    f32(bf16(mul(x, y)))                 -->  mul(x, y)
    f32(where(c, bf16(mul(x, y)), z))    -->  where(c, mul(x, y), f32(z))

A rounding that what comes after it can show by more than its size stays: of what is compared, floored or made an
integer, of what is the largest or the smallest by position, and of what positions are made of. Values in memory are
rounded as their dtype says.
Neighbours: `shown` has marked those that other kernels show, `apply` builds kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from stator.loop import expr as e
from stator.loop.expr import Expr, Rewriter, postorder
from stator.loop.kernel import Store
from stator.loop.scalar import FLOATS, HALVES

#: Operators whose result jumps where an operand passes a number.
_JUMPS = frozenset(
    "eq ne lt le gt ge isnan isinf floor ceil trunc round floordiv mod sign bitcast load index".split()
)  # fmt: skip
_BY_POSITION = ("argmax", "argmin")
#: What gives one of its operands as it is, but for the first, by which it chooses.
CHOICES: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {"where": partial(e.op, "where"), "masked": e.masked}


def without_roundings(stores: Sequence[Store]) -> list[Store]:
    """The same stores of values that are rounded between operators only where it counts."""
    nodes = postorder([root for store in stores for root in store.roots])
    wide = _Wide(below(nodes, ()))
    return [replace(store, value=wide(store.value)) for store in stores]


def below(nodes: Sequence[Expr], kept: Collection[Expr]) -> set[Expr]:
    """These of the nodes, which come after what they are made of, and all that they and what jumps are made of."""
    found = set(kept)
    for node in reversed(nodes):
        if node in found or _jumps(node):
            found.update(node.children)
    return found


def _jumps(node: Expr) -> bool:
    if node.op == "cast":
        return node.dtype not in FLOATS
    if node.op in ("eq", "ne") and any(arg.op == "rsqrt" for arg in node.args):
        return False  # whether a deviation is too large for a number, as batch norm asks
    return node.op in _JUMPS or (node.op == "reduce" and node.attr in _BY_POSITION)


def rounds(node: Expr) -> bool:
    """Whether it gives a half type."""
    return node.op == "cast" and node.dtype in HALVES


class _Wide(Rewriter):
    """Leaves out roundings, but for those that are kept."""

    def __init__(self, kept: set[Expr]) -> None:
        super().__init__({})
        self.kept = kept

    def _rebuild(self, node: Expr) -> Expr:
        if node.op == "cast" and node.dtype in ("f32", "f64"):
            wide = self._unrounded(node.args[0], node.dtype)
            if wide is not None:
                return wide
        return super()._rebuild(node)

    def _unrounded(self, value: Expr, dtype: str) -> Expr | None:
        """What was rounded to a half type, or chosen among values that were; None where nothing was, or is kept."""
        if value.dtype not in HALVES or value in self.kept or (value.op == "cast" and value.attr == e.KEPT):
            return None
        if value.op == "cast" and value.args[0].dtype == dtype:
            return self.memo[value.args[0]]
        if value.op not in CHOICES:
            return None
        condition, *chosen = value.args
        found = [self._unrounded(one, dtype) for one in chosen]
        if not any(found):
            return None
        wide = [e.cast(self.memo[one], dtype) if out is None else out for one, out in zip(chosen, found, strict=True)]
        return CHOICES[value.op](self.memo[condition], *wide)
