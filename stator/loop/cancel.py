"""Which roundings a difference shows: of what is taken less a number that was made of many of its like.

    y = bf16(f(x));  m = mean(y);  (y - m) * rsqrt(mean((y - m)**2) + eps)

Of rows of one number nothing is left of `y - m`, and a norm multiplies what is by as much as `1 / sqrt(eps)`. So `m`
must be of the very `y` that it is taken from. Where one kernel of those between reads its part from memory of a half
type, where it is rounded, and another has its part in registers, all between is; and what `y` is made of is rounded for
all where it is for one of those that make `y`. A kernel that has all of it in registers rounds nothing, even if it
writes `y` for others.
Neighbours: `forms` has the same value the same form; `shown` asks here of all kernels, of forward and backward.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stator.loop.expr import Expr
from stator.loop.rounding import rounds


@dataclass
class Uses:
    """Who reads what has a half type, from memory and from registers: forms, and the values that are made of them.
    `sums` are the sums and differences in what makes a value; `values` are all."""

    memory: dict[Expr, set[Expr]] = field(default_factory=dict)
    registers: dict[Expr, set[Expr]] = field(default_factory=dict)
    sums: dict[Expr, set[Expr]] = field(default_factory=dict)
    values: set[Expr] = field(default_factory=set)


class _Made(NamedTuple):
    """What a form is made of: bit sets of roundings and given values. `points` are on the way within a point, of which
    `near` are the nearest; `summed` are the nearest on the way through reductions and scans; `whole` are all, and all
    values of nests."""

    near: int
    points: int
    summed: int
    whole: int


_NONE = _Made(0, 0, 0, 0)


class _Sum(NamedTuple):
    """A sum or difference that may cancel: all forms between it and what both sides are made of, the bits of those and
    of the values that it is in, and all that it is made of."""

    between: set[Expr]
    inside: int
    whole: int


def shown(uses: Uses, bodies: Mapping[Expr, Expr], kept: Collection[Expr]) -> set[Expr]:
    """The roundings that sums and differences show which may cancel; `kept` are those that stay for another reason.

    `bodies` have what runs over more than a point.
    """
    differences = _Differences(bodies, uses.values)
    sums = list(differences.among(uses.sums))
    memory, registers = [differences.users(users) for users in (uses.memory, uses.registers)]
    found = set(kept)
    for part in memory.keys() & registers.keys():
        found.update([part] if any(memory[part] & one.whole and registers[part] & one.whole for one in sums) else ())
    left = [one for one in sums if any(registers.get(part, 0) & one.inside for part in one.between)]
    count = len(left) + 1
    while len(left) < count:  # what one keeps may be on the way of another
        count, waiting = len(left), list[_Sum]()
        for one in left:
            if any(part in found or memory.get(part, 0) & one.inside for part in one.between):
                found.update([form for form in one.between if rounds(form)])
            else:
                waiting.append(one)
        left = waiting
    return {form for form in found if rounds(form)}


def is_sum(node: Expr) -> bool:
    """Whether it adds two numbers, or takes one from another."""
    return node.op in ("add", "sub")


class _Differences:
    """Finds what cancels in forms."""

    def __init__(self, bodies: Mapping[Expr, Expr], values: Collection[Expr]) -> None:
        self.bodies = bodies
        self._made: dict[Expr, _Made] = {}
        self._bits = {value: 1 << i for i, value in enumerate(values)}

    def among(self, sums: Mapping[Expr, Iterable[Expr]]) -> Iterator[_Sum]:
        """Those of sums and differences that may cancel. They come with the values that they are in."""
        for form, places in sums.items():
            if is_sum(form) and (between := self._cancelling(form)):
                own = self._all([*between, *places])
                whole = self._made[form.args[0]].whole | self._made[form.args[1]].whole
                yield _Sum(between, own, whole | self._all(places))

    def users(self, users: Mapping[Expr, Iterable[Expr]]) -> dict[Expr, int]:
        """The bits of those who use something."""
        return {part: self._all(values) for part, values in users.items()}

    def _all(self, forms: Iterable[Expr]) -> int:
        bits = 0
        for form in forms:
            bits |= self._bits.get(form, 0)
        return bits

    def _cancelling(self, form: Expr) -> set[Expr]:
        """What is between a sum, or a difference, and what both of its sides are made of; nothing where nothing may
        cancel."""
        one, other = [self._of(side) for side in form.args]
        common = (one.points | one.summed) & other.summed | one.summed & other.points
        common |= self._own(form.args[0]) & other.points | self._own(form.args[1]) & one.points
        between = self._between(form.args, common) if common else set()
        return between if form.op == "sub" or any(part.op == "neg" for part in between) else set()

    def _own(self, side: Expr) -> int:
        """The bit of a side that is a number in memory itself, as it is the mean and the largest where it is alone."""
        return self._bits.get(side.args[0] if side.op == "cast" and not rounds(side) else side, 0)

    def _of(self, root: Expr) -> _Made:
        made, stack = self._made, [root]
        while stack:
            parts = self._parts(stack[-1])
            missing = [part for part in parts if part not in made]
            if missing:
                stack += missing
            elif (node := stack.pop()) not in made:
                made[node] = self._join(node, [made[part] for part in parts])
        return made[root]

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        return (self.bodies[node],) if node in self.bodies else node.children

    def _join(self, node: Expr, parts: Sequence[_Made]) -> _Made:
        near = points = summed = whole = 0
        for part in parts:
            near, points = near | part.near, points | part.points
            summed, whole = summed | part.summed, whole | part.whole
        if ends := rounds(node) or (node.op == "load" and node not in self.bodies and bool(node.attr[0])):
            self._bits.setdefault(node, 1 << len(self._bits))
        own = self._bits.get(node, 0)
        whole |= own
        if node.op in ("reduce", "scan") or _is_sum_of_one(node):
            return _Made(0, 0, near | summed, whole)
        if ends:
            near, points = own, points | own
        return _Made(near, points, summed, whole) if whole else _NONE

    def _between(self, sides: Sequence[Expr], common: int) -> set[Expr]:
        """All forms on the way from both sides down to what they have in common."""
        found: set[Expr] = set()
        left = list(sides)
        while left:
            node = left.pop()
            made = self._made[node]
            if node not in found and (made.points | made.summed) & common:
                found.add(node)
                left += () if self._bits.get(node, 0) & common else self._parts(node)
        return found


def _is_sum_of_one(node: Expr) -> bool:
    """Whether it is what a sum of one number became."""
    return node.op == "add" and any(arg.op == "const" and arg.attr == 0 for arg in node.args)
