"""Roundings that a kernel may leave out under `numerics="fast"`: what is rounded to a half type between its operators.

    f32(bf16(mul(x, y)))                 -->  mul(x, y)
    f32(where(c, bf16(mul(x, y)), z))    -->  where(c, mul(x, y), f32(z))

A rounding that what comes after it can show by more than its size stays: of what is compared, floored or made an
integer, of what is the largest or the smallest by position, and of what positions are made of. So it does where other
kernels do that, forward or backward, which read the value from memory or compute it once more: a maximum, and what it
is compared with, are rounded alike then. And so it does where others read the value to take the exponential of its
difference from something, or backward computes it once more for that, and the something is forward's: the parts that
backward of a softmax makes of it add up to 1 then. What products and attention make of a value is another one. Values
in memory are rounded as their dtype says.
Neighbours: `schedule` has marked what is shown, `apply` builds kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stator.loop import expr as e
from stator.loop.deps import Facts, analyse
from stator.loop.expr import Expr, Rewriter, postorder
from stator.loop.kernel import Store
from stator.loop.nest import Extern, Nest, Program, View
from stator.loop.scalar import FLOATS, HALVES

#: Operators whose result jumps where an operand passes a number.
_JUMPS = frozenset(
    "eq ne lt le gt ge isnan isinf floor ceil trunc round floordiv mod sign bitcast load index".split()
)  # fmt: skip
_BY_POSITION = ("argmax", "argmin")
#: Operators whose result changes by as many parts of it as their last operand does: large numbers by a rounding.
_POWERS = ("exp", "exp2")
#: What gives one of its operands as it is, but for the first, by which it chooses.
_CHOICES: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {"where": partial(e.op, "where"), "masked": e.masked}


def shown(facts: Facts, outputs: Collection[int] = ()) -> set[str]:
    """The buffers of a program whose roundings are shown by what is made of them; `outputs` are others that are."""
    return _shown(facts, outputs)[0]


def keep_shown(program: Program, outputs: Collection[int] = ()) -> Program:
    """The program, of which no kernel leaves out roundings that are shown: of values in memory, of what jumps is made
    of, and where the same values are computed once more, at whatever positions.
    """
    forms = _Forms()
    kept = {forms(node) for node in _shown(analyse(program), outputs)[1] if _rounds(node)}
    if not kept:
        return program
    rewrite = _Keeping(forms, kept)
    nodes = [
        replace(node, value=rewrite(node.value), index=rewrite.index(node.index)) if isinstance(node, Nest) else node
        for node in program.nodes
    ]
    return replace(program, nodes=tuple(nodes))


def _shown(facts: Facts, outputs: Collection[int]) -> tuple[set[str], set[Expr]]:
    """The buffers whose roundings are shown, and the expressions of nests whose are."""
    found = {out.buffer for i in outputs if isinstance(out := facts.program.outputs[i], View)}
    # In backward what forward has computed and not rounded, as the maximum of a softmax.
    wide = {buffer.name for buffer in facts.program.inputs if buffer.dtype not in HALVES}
    exponents: set[str] = set()
    expressions: set[Expr] = set()
    for number in reversed(facts.live):
        node = facts.node(number)
        if isinstance(node, Extern):
            found.update([view.buffer for view in node.views()] if _decides(node) else ())
            continue
        nodes = facts.nests[number].nodes
        wanted = {node.value} if node.buffer.name in found else set()
        raised = [item.args[-1] for item in nodes if item.op in _POWERS]
        for exponent in [*raised, node.value] if node.buffer.name in exponents else raised:
            loads, halves, rounded = _terms(exponent)
            exponents.update(loads)
            found.update(halves)
            if rounded and not wide.isdisjoint(loads):
                wanted.update(rounded)
                found.update(wide.intersection(loads))
        kept = _below(nodes, wanted)
        expressions |= kept
        found.update([load.attr[0] for load in kept if load.op == "load" and load.dtype in FLOATS])
    return found, expressions


def _terms(exponent: Expr) -> tuple[list[str], list[str], list[Expr]]:
    """The buffers that are terms of an exponent, those of half types among them that have others beside them, and terms
    that are rounded to a half type there."""
    terms, left, rounded = [], [exponent], []
    while left:
        term = left.pop()
        if _rounds(term) and term.args[0].op not in ("load", "const"):
            rounded.append(term)
        if term.op in ("add", "sub", "neg") or (term.op == "cast" and term.dtype in FLOATS):
            left.extend(term.args)
        elif term.op != "const":
            terms.append(term)
    loads = [term for term in terms if term.op == "load"]
    halves = [load.attr[0] for load in loads if load.dtype in HALVES]
    return [load.attr[0] for load in loads], halves if len(terms) > len(halves) else [], rounded


def _decides(node: Extern) -> bool:
    """Whether an operator of PyTorch gives positions, counts or truths: it sorts, or looks for what is equal.

    Attention gives the state of its random numbers as integers.
    """
    return "attention" not in node.target and any(out.dtype in ("i64", "i32", "bool") for out in node.outputs)


def without_roundings(stores: Sequence[Store]) -> list[Store]:
    """The same stores of values that are rounded between operators only where it counts."""
    nodes = postorder([root for store in stores for root in store.roots])
    wide = _Wide(_below(nodes, ()))
    return [replace(store, value=wide(store.value)) for store in stores]


def _below(nodes: Sequence[Expr], kept: Collection[Expr]) -> set[Expr]:
    """These of the nodes, which come after what they are made of, and all that they and what jumps are made of."""
    found = set(kept)
    for node in reversed(nodes):
        if node in found or _jumps(node):
            found.update(node.children)
    return found


def _jumps(node: Expr) -> bool:
    if node.op == "cast":
        return node.dtype not in FLOATS
    return node.op in _JUMPS or (node.op == "reduce" and node.attr in _BY_POSITION)


def _rounds(node: Expr) -> bool:
    return node.op == "cast" and node.dtype in HALVES


class _Forms:
    """A number for each expression, the same for those that differ only in where they read."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.known: dict[Expr, int] = {}

    def __call__(self, root: Expr) -> int:
        stack = [root]
        while root not in self.known:
            node = stack[-1]
            if missing := [arg for arg in node.args if arg not in self.known]:
                stack.extend(missing)
                continue
            stack.pop()
            attr = node.attr[0] if node.op == "load" else None if node.op == "index" else node.attr
            form = node.op, node.dtype, attr, *[self.known[arg] for arg in node.args]
            self.known[node] = self.numbers.setdefault(form, len(self.numbers))
        return self.known[root]


class _Keeping(Rewriter):
    """Marks the roundings of some forms as ones that stay."""

    def __init__(self, forms: _Forms, kept: Collection[int]) -> None:
        super().__init__({})
        self.forms, self.kept = forms, kept

    def _rebuild(self, node: Expr) -> Expr:
        made = super()._rebuild(node)
        return e.keep(made) if _rounds(node) and self.forms(node) in self.kept else made


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
        if value.op not in _CHOICES:
            return None
        condition, *chosen = value.args
        found = [self._unrounded(one, dtype) for one in chosen]
        if not any(found):
            return None
        wide = [e.cast(self.memo[one], dtype) if out is None else out for one, out in zip(chosen, found, strict=True)]
        return _CHOICES[value.op](self.memo[condition], *wide)
