"""Which roundings other kernels show, so that none may leave them out under `numerics="fast"`: of all that is compiled
together, forward and backward.

A rounding is shown where something jumps by it (`rounding`), in whatever kernel: a maximum, and what it is compared
with, are rounded alike then. Three more show one, as they may be large numbers times the difference that it makes:

- what others read from memory is raised: `exp(x - max)`;
- what backward reads from memory is taken less a number that nothing has rounded: `x - mean`, where forward has taken
  the mean, and a norm multiplies by as much as `1 / sqrt(eps)`;
- what one half rounds for any of that, the other half computes once more of the same inputs.

What products and attention make of a value is another value.
Neighbours: the pipeline has programs marked before `schedule` makes kernels, where `rounding` leaves out others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stator.loop import expr as e
from stator.loop.deps import Facts, analyse
from stator.loop.expr import Expr, Rewriter
from stator.loop.footprint import Kept
from stator.loop.index import Index
from stator.loop.nest import Extern, Nest, Program, View
from stator.loop.rounding import CHOICES, below, rounds
from stator.loop.scalar import FLOATS, HALVES

#: Operators whose result changes by as many parts of it as their last operand does: large numbers by a rounding.
_POWERS = ("exp", "exp2")


def keep_shown(program: Program) -> Program:
    """The program, in which roundings that are shown are marked as ones that stay."""
    facts, forms = analyse(program), _Forms({})
    return _marked(program, forms, forms.kept(facts, _shown(facts, _Shown())))


def keep_shown_by_both(forward: Program, backward: Program, saved: Sequence[Kept]) -> tuple[Program, Program]:
    """The halves of a program, in which roundings that either shows are marked as ones that stay.

    `saved` are the inputs of backward that are results of forward; its others are inputs of forward of the same name.
    """
    results = [(backward.inputs[kept.input], forward.outputs[kept.output]) for kept in saved]
    given = {later: now.buffer for later, now in results if isinstance(now, View)}
    names = {later.name: buffer for later, buffer in given.items()}
    first, last = analyse(forward), analyse(backward)
    seen = _shown(last, _Shown(), differences=True)
    whole, stored = [{names[name] for name in found if name in names} for found in (seen.whole, seen.stored)]
    forms = _Forms({})
    kept = forms.kept(first, _shown(first, _Shown(whole, stored)))
    again = _Forms(
        forms.wholes, {later.name: forms.read(now, Index.of(0), later.dtype) for later, now in given.items()}
    )
    kept |= again.kept(last, seen)
    return _marked(forward, forms, kept), _marked(backward, again, kept)


@dataclass
class _Shown:
    """What is shown: of buffers in `whole` all roundings on the way there, of those in `stored` the last, to memory."""

    whole: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    expressions: set[Expr] = field(default_factory=set)

    def see(self, name: str, value: Expr, nodes: Sequence[Expr]) -> None:
        """One nest, after all that read what it writes."""
        kept = below(nodes, {value} if name in self.whole else ())
        self.expressions |= kept
        self.whole.update([load.attr[0] for load in kept if load.op == "load" and load.dtype in FLOATS])
        for last in _stored(value) if name in self.stored else ():
            if last.op == "load":
                self.stored.add(last.attr[0])
            else:
                self.expressions.add(last)


def _shown(facts: Facts, found: _Shown, differences: bool = False) -> _Shown:
    """What a program shows, beside what is `found` shown of its results: also by `differences` from unrounded numbers,
    where other programs have computed those."""
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
        for terms in [_terms(item) for item in nodes if item.op == "sub"] if differences else ():
            found.stored.update(terms.halves if len(terms.loads) > len(terms.halves) else ())
    return found


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


def _stored(value: Expr) -> Iterator[Expr]:
    """What a value is as memory has it: its roundings, where they are the last thing, and loads of what is there."""
    left = [value]
    while left:
        part = left.pop()
        if part.op in CHOICES:
            left.extend(part.args[1:])
        elif rounds(part) or part.op == "load":
            yield part


def _decides(node: Extern) -> bool:
    """Whether an operator of PyTorch gives positions, counts or truths: it sorts, or looks for what is equal.

    Attention gives the state of its random numbers as integers.
    """
    return "attention" not in node.target and any(out.dtype in ("i64", "i32", "bool") for out in node.outputs)


class _Forms(Rewriter):
    """Expressions of what programs are given, in which it is left open where anything is read: the same ones where the
    same is computed. `buffers` have what is known of some; `wholes` are numbers of what runs over more than a point.
    """

    def __init__(self, wholes: dict[Expr, int], buffers: Mapping[str, Expr] | None = None) -> None:
        super().__init__({}, self.read)
        self.wholes, self.buffers = wholes, dict(buffers or {})

    def kept(self, facts: Facts, shown: _Shown) -> set[Expr]:
        """The forms of roundings that are shown in a program, of which all forms are known then."""
        for number in facts.live:
            node = facts.node(number)
            if isinstance(node, Nest) and node.buffer.name not in facts.special:
                self.buffers[node.buffer.name] = self._value(node)
        return {form for node in shown.expressions if rounds(node) and rounds(form := self(node))}

    def _value(self, node: Nest) -> Expr:
        form = self(node.value)
        if not node.reduce_axes:
            return form
        return self.read(f"{self.wholes.setdefault(form, len(self.wholes))}", Index.of(0), node.buffer.dtype)

    def read(self, name: str, index: Index, dtype: str) -> Expr:
        """What memory has."""
        return self.buffers.get(name) or e.load(name, 0, dtype)

    def _rebuild(self, node: Expr) -> Expr:
        return e.load("", 0, "i64") if node.op == "index" else super()._rebuild(node)


def _marked(program: Program, forms: _Forms, kept: set[Expr]) -> Program:
    """The program, of which roundings of some forms are marked as ones that stay."""
    if not kept:
        return program
    rewrite = _Marking(forms, kept)
    nodes = [
        replace(node, value=rewrite(node.value), index=rewrite.index(node.index)) if isinstance(node, Nest) else node
        for node in program.nodes
    ]
    return replace(program, nodes=tuple(nodes))


class _Marking(Rewriter):
    """Marks the roundings of some forms as ones that stay."""

    def __init__(self, forms: _Forms, kept: set[Expr]) -> None:
        super().__init__({})
        self.forms, self.kept = forms, kept

    def _rebuild(self, node: Expr) -> Expr:
        made = super()._rebuild(node)
        return e.keep(made) if rounds(node) and self.forms(node) in self.kept else made
