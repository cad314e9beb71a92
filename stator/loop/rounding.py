"""Roundings that a kernel may leave out under `numerics="fast"`: what is rounded to a half type between its operators.

    f32(bf16(mul(x, y)))  -->  mul(x, y)

A rounding that what comes after it can show by more than its size stays: of what is compared, floored or made an
integer, of what is the largest or the smallest by position, and of what positions are made of. Values in memory are
rounded as their dtype says. Neighbour: `apply`, which builds kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stator.loop.expr import Expr, Rewriter, postorder
from stator.loop.kernel import Store
from stator.loop.scalar import FLOATS

#: Operators whose result jumps where an operand passes a number.
_JUMPS = frozenset(
    "eq ne lt le gt ge isnan isinf floor ceil trunc round floordiv mod sign bitcast load index".split()
)  # fmt: skip
_BY_POSITION = ("argmax", "argmin")


def without_roundings(stores: Sequence[Store]) -> list[Store]:
    """The same stores of values that are rounded between operators only where it counts."""
    nodes = postorder([root for store in stores for root in store.roots])
    kept: set[Expr] = {root for store in stores for root in store.roots[1:]}
    for node in reversed(nodes):
        if node in kept or _jumps(node):
            kept.update(node.children)
    wide = _Wide(kept)
    return [replace(store, value=wide(store.value)) for store in stores]


def _jumps(node: Expr) -> bool:
    if node.op == "cast":
        return node.dtype not in FLOATS
    return node.op in _JUMPS or (node.op == "reduce" and node.attr in _BY_POSITION)


class _Wide(Rewriter):
    """Leaves out roundings, but for those that are kept."""

    def __init__(self, kept: set[Expr]) -> None:
        super().__init__({})
        self.kept = kept

    def _rebuild(self, node: Expr) -> Expr:
        if node.op == "cast" and node.dtype in ("f32", "f64"):
            (rounded,) = node.args
            is_rounding = rounded.op == "cast" and rounded.dtype in ("bf16", "f16")
            if is_rounding and rounded not in self.kept and rounded.args[0].dtype == node.dtype:
                return self.memo[rounded.args[0]]
        return super()._rebuild(node)
