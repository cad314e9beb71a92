"""Finds a pattern in a captured graph: which nodes it covers, and what its arguments stand for.

The search goes from results to operands and compares normal forms (`normal.py`). It tries both orders of commutative
operands, both ways to write a condition, a permutation of what an argument stands for, and for a number that multiplies
the number 1, where the program has no product. It reads graphs and changes none.
Neighbours: `rewrite.py` says whether what was found may be replaced, and does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from stator.base.errors import Location, StatorError
from stator.fake.mode import FakeMode
from stator.fake.symbolic import extents, is_symbolic
from stator.patterns.normal import COMMUTATIVE, Form, form, number, permuted, tensor
from stator.patterns.pattern import Pattern, kind, run

#: Operators that only show values again: what else reads them is not disturbed.
SHOWING = frozenset({"permute", "reshape", "expand", "same"})
#: How many nodes above an anchor the result of a pattern is looked for.
_REACH = 40


@dataclass(frozen=True, slots=True)
class State:
    """What is known in the middle of a comparison."""

    inputs: dict[fx.Node, Any] = field(default_factory=dict)
    nodes: dict[fx.Node, Any] = field(default_factory=dict)
    covered: tuple[fx.Node, ...] = ()
    numbers: tuple[tuple[fx.Node, Any], ...] = ()

    def with_input(self, node: fx.Node, value: Any) -> State:
        return replace(self, inputs={**self.inputs, node: value})


@dataclass(slots=True)
class Match:
    """One place where a pattern was found, as `check` sees it.

    `inputs` has what the arguments stand for: numbers, nodes, or forms that no node makes yet; `values` the same with
    fakes in place of nodes; `covered` the nodes that the replacement computes anew, and `made` those that do.
    """

    pattern: Pattern
    result: fx.Node
    covered: tuple[fx.Node, ...]
    inputs: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    made: list[fx.Node] = field(default_factory=list)

    @property
    def location(self) -> Location | None:
        """The line of the program."""
        found = self.result.meta.get("location")
        return Location(*found) if found else None

    @property
    def value(self) -> torch.Tensor:
        """The fake of the result."""
        found = tensor(self.result)
        assert found is not None
        return found


def find(pattern: Pattern, anchor: fx.Node) -> Iterator[Match]:
    """Every way to see the pattern around a node with the operator of its anchor."""
    searched = pattern.searched
    wanted = form(searched.result)
    assert wanted is not None
    matcher = _Matcher(pattern)
    for root in _above(anchor):
        found = form(root)
        if found is None or found.op != wanted.op:
            continue
        for state in matcher.node(searched.result, root, State()):
            if anchor in state.covered:
                inputs = {name: state.inputs[node] for name, node in zip(pattern.names, searched.inputs, strict=True)}
                match = Match(pattern, root, (root, *[node for node in state.covered if node is not root]), inputs)
                match.values = {name: value_of(bound) for name, bound in inputs.items()}
                if matcher.sizes_agree(match, state):
                    yield match


def _above(node: fx.Node) -> Iterator[fx.Node]:
    """A node and the nodes that read it, the nearest first."""
    queue, seen = [node], {node}
    for current in queue:
        yield current
        new = [user for user in current.users if user not in seen] if len(seen) < _REACH else []
        seen.update(new)
        queue += new


def value_of(bound: Any) -> Any:
    """The fake of what an argument stands for."""
    if isinstance(bound, fx.Node):
        return bound.meta["val"]
    if not isinstance(bound, Form):
        return bound
    value = value_of(bound.args[0])
    with FakeMode(), torch.no_grad():
        return value.permute(bound.args[1]) if bound.op == "permute" else value.logical_not()


class _Matcher:
    """Compares one pattern's nodes with those of a program."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.examples = dict(zip(pattern.searched.inputs, pattern.examples, strict=True))

    def part(self, wanted: Any, given: Any, state: State) -> Iterator[State]:
        """A part of the pattern against a part of the program."""
        match wanted:
            case fx.Node():
                yield from self.node(wanted, given, state)
            case Form(op="reciprocal"):
                if value := number(given):
                    yield from self.node(wanted.args[0], 1 / value, state)
            case Form():
                yield from self.form(wanted, given, state)
            case list() | tuple():
                if isinstance(given, list | tuple) and len(given) == len(wanted):
                    yield from self.parts(wanted, given, state)
            case int() | float() if not isinstance(wanted, bool):
                value = number(given)
                if value is not None and not isinstance(value, bool) and _equal(wanted, value):
                    yield state
            case _ if type(wanted) is type(given) and wanted == given:
                yield state

    def parts(self, wanted: Sequence[Any], given: Sequence[Any], state: State) -> Iterator[State]:
        """Operands one after the other."""
        if not wanted:
            yield state
            return
        for first in self.part(wanted[0], given[0], state):
            yield from self.parts(wanted[1:], given[1:], first)

    def node(self, wanted: fx.Node, given: Any, state: State) -> Iterator[State]:
        """A node of the pattern against a part of the program."""
        if wanted in self.examples:
            yield from self.argument(wanted, given, state)
            return
        if wanted in state.nodes:
            if _same(state.nodes[wanted], given):
                yield state
            return
        if not isinstance(wanted.meta["val"], torch.Tensor):
            if (value := number(given)) is not None:
                yield replace(state, numbers=(*state.numbers, (wanted, value)))
            return
        known = form(wanted)
        if known is not None and isinstance(given, fx.Node | Form):
            for found in self.form(known, given, state):
                yield replace(found, nodes={**found.nodes, wanted: given})

    def form(self, wanted: Form, given: Any, state: State) -> Iterator[State]:
        """An operator of the pattern against a part of the program."""
        if wanted.op == "same":
            yield from self.part(wanted.args[0], given, state)
            return
        found = form(given) if isinstance(given, fx.Node) else given if isinstance(given, Form) else None
        inside = replace(state, covered=(*state.covered, given)) if isinstance(given, fx.Node) else state
        if wanted.op == "permute":
            yield from self.permutation(wanted, given, found, inside, state)
            return
        if wanted.op in ("reshape", "expand"):
            yield from self.shown(wanted, given, found, inside, state)
            return
        if found is not None:
            for operands in _orders(found) if found.op == wanted.op else ():
                if len(operands) == len(wanted.args):
                    yield from self.parts(wanted.args, operands, inside)
            if found.op == "same":
                yield from self.form(wanted, found.args[0], inside)
        if wanted.op == "scale" and isinstance(wanted.args[1], fx.Node | Form):
            for bound in self.part(wanted.args[1], 1.0, state):
                yield from self.part(wanted.args[0], given, bound)

    def permutation(self, wanted: Form, given: Any, found: Form | None, inside: State, state: State) -> Iterator[State]:
        """`wanted` is a permutation of something, which then is `given` permuted back."""
        base, order = wanted.args
        back = tuple([order.index(dim) for dim in range(len(order))])
        value = value_of(given) if isinstance(given, fx.Node | Form) else None
        if not isinstance(value, torch.Tensor) or value.dim() != len(order):
            return
        rest = permuted(given, back)
        below, left = rest.args
        stripped = found is not None and found.op == "permute"
        target = below if left == tuple(range(len(left))) else rest
        yield from self.part(base, target, inside if stripped else state)

    def shown(self, wanted: Form, given: Any, found: Form | None, inside: State, state: State) -> Iterator[State]:
        """A reshape, or an expansion, of something: any number of them that give the same sizes in the end."""
        (base,) = wanted.args
        while isinstance(base, fx.Node) and (below := form(base)) is not None and below.op == wanted.op:
            (base,) = below.args
        yield from self.part(base, given, state)
        while found is not None and found.op in (wanted.op, "same"):
            yield from self.part(base, found.args[0], inside)
            given = found.args[0]
            found = form(given) if isinstance(given, fx.Node) else None
            inside = replace(inside, covered=(*inside.covered, given)) if isinstance(given, fx.Node) else inside

    def argument(self, wanted: fx.Node, given: Any, state: State) -> Iterator[State]:
        """An argument of the pattern stands for a part of the program, the same wherever it is used."""
        example = self.examples[wanted]
        if isinstance(example, torch.Tensor):
            if not isinstance(given, fx.Node | Form) or not self.stands_for(wanted, example, value_of(given)):
                return
        else:
            given = number(given)
            if (
                given is None
                or not isinstance(given, type(example) | int)
                or isinstance(given, bool) is not isinstance(example, bool)
            ):
                return
        if wanted not in state.inputs:
            yield state.with_input(wanted, given)
        elif _same(state.inputs[wanted], given):
            yield state
        found = form(given) if isinstance(given, fx.Node) else None
        if found is not None and found.op == "same":
            yield from self.argument(wanted, found.args[0], replace(state, covered=(*state.covered, given)))

    def stands_for(self, wanted: fx.Node, example: torch.Tensor, value: Any) -> bool:
        """Whether a value is of the class that an example names."""
        if not isinstance(value, torch.Tensor) or kind(value.dtype) != kind(example.dtype):
            return False
        return value.dim() == example.dim() or wanted.name in self.pattern.any_rank

    def sizes_agree(self, match: Match, state: State) -> bool:
        """Whether the numbers and the sizes that the pattern computes are those of the program."""
        if not self.pattern.computes_numbers:
            return True
        tensors = [value for value in match.values.values() if isinstance(value, torch.Tensor)]
        if any(is_symbolic(value.shape) for value in tensors):
            return False
        try:
            values = run(self.pattern.searched.graph, list(match.values.values()))
        except (RuntimeError, TypeError, ValueError, IndexError, StatorError):  # it does not compute with these sizes
            return False
        agree = all(_equal(values[node], found) for node, found in state.numbers)
        pairs = [(values[wanted], value_of(given)) for wanted, given in state.nodes.items()]
        return agree and all(not isinstance(a, torch.Tensor) or a.shape == b.shape for a, b in pairs)


def _orders(found: Form) -> Iterator[tuple[Any, ...]]:
    """The operands of a form in every order that means the same."""
    yield found.args
    if found.op in COMMUTATIVE and len(found.args) == 2:
        yield found.args[::-1]
    if found.op == "where":
        condition, yes, no = found.args
        yield (Form("logical_not", (condition,)), no, yes)


def _equal(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, float) or isinstance(given, float):
        return wanted == given or math.isclose(wanted, given, rel_tol=1e-7)
    return bool(wanted == given)


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of a program are one value, or are seen to show one."""
    if one is other:
        return True
    if not isinstance(one, fx.Node | Form) or not isinstance(other, fx.Node | Form):
        return type(one) is type(other) and bool(one == other)
    left, right = (form(part) if isinstance(part, fx.Node) else part for part in (one, other))
    if left is not None and left.op == "same":
        return _same(left.args[0], other)
    if right is not None and right.op == "same":
        return _same(one, right.args[0])
    if left is None or right is None or left.op != right.op or left.op not in {*SHOWING, "logical_not"}:
        return False
    sizes = extents(value_of(one).shape) == extents(value_of(other).shape)
    return sizes and left.args[1:] == right.args[1:] and _same(left.args[0], right.args[0])
