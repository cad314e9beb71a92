"""Which roundings other kernels show, so that none may leave them out under `numerics="fast"`: of all that is compiled
together, forward and backward.

A rounding is shown where something jumps by it (`rounding`), in whatever kernel: a maximum, and what it is compared
with, are rounded alike then. Three more show one, as they may be large numbers times the difference that it makes:

- what others read from memory is raised: `exp(x - max)`;
- a difference may cancel, of which memory has a part: `x - mean` (`cancel`), where forward has taken the mean, or
  another kernel;
- what one half rounds for any of that, the other half computes once more of the same inputs.

What products and attention make of a value is another value.
Neighbours: `schedule` has plans marked before it makes kernels, where `rounding` leaves out others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stator.loop import cancel
from stator.loop import expr as e
from stator.loop.cancel import Uses
from stator.loop.deps import Facts, facts_of
from stator.loop.expr import Expr, Rewriter
from stator.loop.footprint import Kept
from stator.loop.forms import Forms
from stator.loop.fusion import FusionPlan
from stator.loop.index import Index
from stator.loop.nest import Extern, Nest, View
from stator.loop.rounding import CHOICES, below, rounds
from stator.loop.scalar import FLOATS, HALVES

#: Operators whose result changes by as many parts of it as their last operand does: large numbers by a rounding.
_POWERS = ("exp", "exp2")


def keep_shown(plan: FusionPlan) -> FusionPlan:
    """The plan, in which roundings that are shown are marked as ones that stay."""
    if not _rounds(plan):
        return plan
    forms = Forms({})
    forms.learn(plan.facts)
    kept = _rounded(forms, _shown(plan.facts, _Shown()))
    _note(uses := Uses(), forms, plan)
    return _marked(plan, forms, cancel.shown(uses, forms.bodies, kept))


def keep_shown_by_both(
    forward: FusionPlan, backward: FusionPlan, saved: Sequence[Kept]
) -> tuple[FusionPlan, FusionPlan]:
    """The halves of a program, in which roundings that either shows are marked as ones that stay.

    `saved` are the inputs of backward that are results of forward; its others are inputs of forward of the same name.
    """
    if not _rounds(forward) and not _rounds(backward):
        return forward, backward
    inputs, outputs = backward.facts.program.inputs, forward.facts.program.outputs
    results = [(inputs[kept.input], outputs[kept.output]) for kept in saved]
    given = {later.name: (later.dtype, now.buffer) for later, now in results if isinstance(now, View)}
    seen = _shown(backward.facts, _Shown())
    asked = {now for later, (_, now) in given.items() if later in seen.whole}
    forms = Forms({})
    forms.learn(forward.facts)
    again = Forms(forms.bodies, {later: forms.read(now, Index.of(0), dtype) for later, (dtype, now) in given.items()})
    again.learn(backward.facts)
    kept = _rounded(forms, _shown(forward.facts, _Shown(asked))) | _rounded(again, seen)
    _note(uses := Uses(), forms, forward)
    _note(uses, again, backward)
    kept = cancel.shown(uses, forms.bodies, kept)
    return _marked(forward, forms, kept), _marked(backward, again, kept)


def _rounds(plan: FusionPlan) -> bool:
    """Whether anything is rounded to a half type."""
    return any(rounds(item) for nest in plan.facts.nests.values() for item in nest.nodes)


def _note(uses: Uses, forms: Forms, plan: FusionPlan) -> None:
    """What the kernels of a plan use of half types, and where they add and take away."""
    for group in plan.groups:
        for number in group.members:
            if (nest := plan.facts.nests.get(number)) is None:
                continue
            value = forms.buffers.get(nest.nest.buffer.name) or forms(nest.nest.value)
            uses.values.add(value)
            for item in nest.nodes:
                if item.op == "load" and item.dtype in HALVES:
                    users = uses.registers if item.attr[0] in group.writes else uses.memory
                    for part in _stored(forms(item), forms.bodies):
                        users.setdefault(part, set()).add(value)
                elif rounds(item) and item is not nest.nest.value:
                    uses.registers.setdefault(forms(item), set()).add(value)
                elif cancel.is_sum(item):
                    uses.sums.setdefault(forms(item), set()).add(value)


@dataclass
class _Shown:
    """What is shown: of buffers in `whole` all roundings on the way there."""

    whole: set[str] = field(default_factory=set)
    expressions: set[Expr] = field(default_factory=set)

    def see(self, name: str, value: Expr, nodes: Sequence[Expr]) -> None:
        """One nest, after all that read what it writes."""
        kept = below(nodes, {value} if name in self.whole else ())
        self.expressions |= kept
        self.whole.update([load.attr[0] for load in kept if load.op == "load" and load.dtype in FLOATS])


def _shown(facts: Facts, found: _Shown) -> _Shown:
    """What a program shows, beside what is `found` shown of its results."""
    exponents: set[str] = set()
    for number in reversed(facts.live):
        node = facts.node(number)
        if isinstance(node, Extern):
            found.whole.update([view.buffer for view in node.views()] if _decides(node) else ())
            continue
        nodes, name = facts.nests[number].nodes, node.buffer.name
        found.see(name, node.value, nodes)
        raised = [item.args[-1] for item in nodes if item.op in _POWERS]
        for exponent in [*raised, node.value] if name in exponents else raised:
            terms = _terms(exponent)
            exponents.update([load.attr[0] for load in terms.loads])
            found.whole.update(terms.halves if terms.others else ())
    return found


def _rounded(forms: Forms, shown: _Shown) -> set[Expr]:
    """The forms of roundings that are shown."""
    return {form for node in shown.expressions if rounds(node) and rounds(form := forms(node))}


class _Terms(NamedTuple):
    """Loads that are terms of a sum, the buffers of those of half types, and whether it has other terms than those."""

    loads: list[Expr]
    halves: list[str]
    others: bool


def _terms(root: Expr) -> _Terms:
    terms, left = [], [root]
    while left:
        term = left.pop()
        if term.op in ("add", "sub", "neg") or (term.op == "cast" and term.dtype in FLOATS):
            left.extend(term.args)
        elif term.op != "const":
            terms.append(term)
    loads = [term for term in terms if term.op == "load"]
    halves = [load.attr[0] for load in loads if load.dtype in HALVES]
    return _Terms(loads, halves, len(terms) > len(halves))


def _stored(value: Expr, bodies: Collection[Expr]) -> Iterator[Expr]:
    """A value as memory has it, and what it is chosen of, but for what is given."""
    left = [value]
    while left:
        part = left.pop()
        if part.op in CHOICES:
            left.extend(part.args[1:])
        if part.op != "load" or part in bodies:
            yield part


def _decides(node: Extern) -> bool:
    """Whether an operator of PyTorch gives positions, counts or truths: it sorts, or looks for what is equal.

    Attention gives the state of its random numbers as integers.
    """
    return "attention" not in node.target and any(out.dtype in ("i64", "i32", "bool") for out in node.outputs)


def _marked(plan: FusionPlan, forms: Forms, kept: set[Expr]) -> FusionPlan:
    """The plan, of which roundings of some forms are marked as ones that stay."""
    if not kept:
        return plan
    rewrite, facts = _Marking(forms, kept), plan.facts
    nests = {number: facts_of(rewrite.nest(found.nest)) for number, found in facts.nests.items()}
    return replace(plan, facts=replace(facts, nests=nests))


class _Marking(Rewriter):
    """Marks the roundings of some forms as ones that stay."""

    def __init__(self, forms: Forms, kept: set[Expr]) -> None:
        super().__init__({})
        self.forms, self.kept = forms, kept

    def nest(self, nest: Nest) -> Nest:
        """The nest that computes the same but for roundings."""
        return replace(nest, value=self(nest.value), index=self.index(nest.index))

    def _rebuild(self, node: Expr) -> Expr:
        made = super()._rebuild(node)
        return e.keep(made) if rounds(node) and self.forms(node) in self.kept else made
