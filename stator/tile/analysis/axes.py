"""Axis information: how the elements of integer and pointer tiles run along each axis, as far as that is known.

Along an axis, `contiguity` says that the elements come in groups of so many, from index 0 on, in which each is one more
than the one before (one element further on, of pointers); `divisibility` what divides the first of each such group (in
bytes, of pointers); `constancy` that groups of so many are equal. All three are powers of two; 1 says nothing.
A scalar is a tile of one element. Overflow of an index in the midst of a group is taken not to happen, as Triton does.
Quotients and remainders round towards zero, so that groups are theirs only where they begin at no negative number:
`least` is a number that no element is below. Arguments and divisors are taken to be not negative, loaded ones not.
Neighbours: `least` has the rules of that; `stator.tile.cpu` decides by axis information what is read and written as a
whole, and what is a number for all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, TypeAlias

from stator.tile.analysis.least import least_of
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.types import Pointer, Type

#: What divides 0, and more than anybody asks for.
LARGEST = 1 << 40
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Axes:
    """The facts of one value, a number for each axis; `value` is what all its elements are, if that is known.

    No element is below `least`; None says nothing.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    value: int | None = None
    least: int | None = None

    def each(self, axis: int) -> int:
        """What divides every element."""
        return self.divisibility[axis] if self.contiguity[axis] == 1 else 1

    def whole(self) -> int:
        """What divides every element, whichever axis tells it."""
        return max([self.each(axis) for axis in range(len(self.contiguity))])

    def bounded(self, least: int | None) -> Axes:
        """With another bound."""
        if least == self.least:
            return self
        return Axes(self.contiguity, self.divisibility, self.constancy, self.value, least)

    @property
    def is_natural(self) -> bool:
        """Whether no element is negative."""
        return self.least is not None and self.least >= 0

    def __str__(self) -> str:
        known = "" if self.value is None else f" = {self.value}"
        return f"contiguity {self.contiguity}, divisibility {self.divisibility}, constancy {self.constancy}{known}"


Found: TypeAlias = Mapping[Value, Axes]
Rule: TypeAlias = Callable[[Operation, "list[Axes]"], Axes]


def power_of_two(number: int) -> int:
    """The greatest one that divides a number."""
    return LARGEST if number == 0 else min(number & -number, LARGEST)


def sizes(type_: Type) -> tuple[int, ...]:
    """The sizes of a tile; a scalar counts as a tile of one element."""
    return type_.shape or (1,)


def unknown(type_: Type) -> Axes:
    """What holds of any value of this type."""
    ones = (1,) * len(sizes(type_))
    return Axes(ones, ones, ones)


def _join(a: Axes, b: Axes) -> Axes:
    """What holds of both."""
    pairs = [
        tuple(map(gcd, x, y))
        for x, y in ((a.contiguity, b.contiguity), (a.divisibility, b.divisibility), (a.constancy, b.constancy))
    ]
    least = None if a.least is None or b.least is None else min(a.least, b.least)
    return Axes(pairs[0], pairs[1], pairs[2], a.value if a.value == b.value else None, least)


def _turned(before: Axes, after: Axes) -> Axes:
    """What holds of a carried value at the start and behind a turn; one that becomes less may go on to."""
    found = _join(before, after)
    return found if found.least == before.least else found.bounded(None)


def _scalar(divisibility: int, least: int | None = None) -> Axes:
    return Axes((1,), (min(divisibility, LARGEST),), (1,), None, least)


# ---- rules


def _constant(operation: Operation, given: list[Axes]) -> Axes:
    value, shape = operation.attrs["value"], sizes(operation.result.type)
    whole = int(value) if isinstance(value, int) else None
    known = 1 if whole is None else power_of_two(whole)
    return Axes((1,) * len(shape), (known,) * len(shape), tuple(map(power_of_two, shape)), whole)


def _arange(operation: Operation, given: list[Axes]) -> Axes:
    start, size = operation.attrs["start"], operation.result.type.numel
    return Axes((power_of_two(size),), (power_of_two(start),), (1,))


def _splat(operation: Operation, given: list[Axes]) -> Axes:
    shape, (scalar,) = operation.result.type.shape, given
    known = (scalar.divisibility[0],) * len(shape)
    return Axes((1,) * len(shape), known, tuple(map(power_of_two, shape)), scalar.value)


def _broadcast(operation: Operation, given: list[Axes]) -> Axes:
    (a,), before, after = given, operation.operands[0].type.shape, operation.result.type.shape
    constancy = [power_of_two(new) if old == 1 else k for old, new, k in zip(before, after, a.constancy, strict=True)]
    return replace(a, constancy=tuple(constancy))


def _expand(operation: Operation, given: list[Axes]) -> Axes:
    (a,), axis = given, operation.attrs["axis"]
    shape = operation.result.type.shape
    if len(shape) == len(a.contiguity):  # a scalar, that has got its first axis
        return a

    def put(numbers: tuple[int, ...], new: int) -> tuple[int, ...]:
        return (*numbers[:axis], new, *numbers[axis:])

    return Axes(put(a.contiguity, 1), put(a.divisibility, a.whole()), put(a.constancy, 1), a.value)


def _permute(operation: Operation, given: list[Axes]) -> Axes:
    (a,), order = given, operation.attrs["order"]
    contiguity, divisibility, constancy = (
        tuple([numbers[axis] for axis in order]) for numbers in (a.contiguity, a.divisibility, a.constancy)
    )
    return Axes(contiguity, divisibility, constancy, a.value)


def _reshape(operation: Operation, given: list[Axes]) -> Axes:
    """Runs along the last axis stay runs along the last one, as far as they fit into it."""
    (a,), shape = given, sizes(operation.result.type)
    last = power_of_two(shape[-1])
    run, same = min(a.contiguity[-1], last), min(a.constancy[-1], last)
    known = a.divisibility[-1] if run == a.contiguity[-1] else min(a.divisibility[-1], run)
    ones = (1,) * (len(shape) - 1)
    return Axes((*ones, run), (*ones, known), (*ones, same), a.value)


def _added(a: Axes, b: Axes, axis: int, both: bool, scale: int) -> tuple[int, int]:
    """Contiguity and divisibility of a + scale * b; `both` if b may be what runs."""
    best = (1, min(a.each(axis), b.each(axis) * scale))
    turns = [(a, b, 1, scale)] + ([(b, a, scale, 1)] if both else [])
    for runs, stays, factor, other in turns:
        run = min(runs.contiguity[axis], stays.constancy[axis])
        if run > best[0]:
            first = runs.divisibility[axis] if run == runs.contiguity[axis] else min(runs.divisibility[axis], run)
            best = (run, min(first * factor, stays.each(axis) * other))
    return best


def _sum(operation: Operation, given: list[Axes]) -> Axes:
    a, b = given
    element = operation.operands[0].type.element
    scale = element.to.itemsize if isinstance(element, Pointer) else 1
    axes = range(len(a.contiguity))
    found = [_added(a, b, axis, operation.op != "sub", scale) for axis in axes]
    constancy = tuple(map(min, a.constancy, b.constancy))
    value = None
    if a.value is not None and b.value is not None and operation.op != "addptr":
        value = a.value + b.value if operation.op == "add" else a.value - b.value
    known = tuple([min(divisibility, LARGEST) for _, divisibility in found])
    return Axes(tuple([run for run, _ in found]), known, constancy, value)


def _product(operation: Operation, given: list[Axes]) -> Axes:
    a, b = given
    if b.value == 1 or a.value == 1:
        kept, other = (a, b) if b.value == 1 else (b, a)
        return replace(kept, constancy=tuple(map(min, kept.constancy, other.constancy)))
    axes = range(len(a.contiguity))
    known = tuple([min(a.each(axis) * b.each(axis), LARGEST) for axis in axes])
    value = a.value * b.value if a.value is not None and b.value is not None else None
    return Axes((1,) * len(known), known, tuple(map(min, a.constancy, b.constancy)), value)


def _remainder(operation: Operation, given: list[Axes]) -> Axes:
    """A run that begins at a multiple of its length stays one if that divides the divisor too."""
    a, b = given
    runs, known = [], []
    for axis in range(len(a.contiguity)):
        divisibility = min(a.divisibility[axis], b.each(axis))
        runs.append(min(a.contiguity[axis], b.constancy[axis], divisibility) if a.is_natural else 1)
        known.append(min(divisibility, runs[-1]) if runs[-1] < a.contiguity[axis] else divisibility)
    return Axes(tuple(runs), tuple(known), tuple(map(min, a.constancy, b.constancy)))


def _quotient(operation: Operation, given: list[Axes]) -> Axes:
    """The same in all of a run that begins at a multiple of its length, if that divides the divisor too."""
    a, b = given
    constancy, known = list(map(min, a.constancy, b.constancy)), []
    for axis in range(len(constancy)):
        side = min(a.contiguity[axis], b.constancy[axis], a.divisibility[axis], b.each(axis))
        constancy[axis] = max(constancy[axis], side if a.is_natural else 1)
        whole = b.value is not None and b.value > 0 and a.each(axis) % b.value == 0
        known.append(a.each(axis) // b.value if whole and b.value is not None else 1)
    if b.value == 1:
        return replace(a, least=None)
    return Axes((1,) * len(known), tuple(known), tuple(constancy))


def _shifted(operation: Operation, given: list[Axes]) -> Axes:
    """A product or, to the right, a quotient that rounds downwards, where the number of bits is known."""
    a, b = given
    if b.value is None or not 0 <= b.value < LARGEST.bit_length() - 1:
        return _alike(operation, given)
    by = 1 << b.value
    power = Axes(b.contiguity, (by,) * len(b.contiguity), b.constancy, by)
    return (_product if operation.op == "shl" else _quotient)(operation, [a, power])


def _compare(operation: Operation, given: list[Axes]) -> Axes:
    """A run that begins at a multiple of its length lies on one side of such a number."""
    a, b = given
    constancy = list(map(min, a.constancy, b.constancy))
    runs, stays = (a, b) if operation.op in ("lt", "ge") else (b, a)
    if operation.op in ("lt", "ge", "gt", "le"):
        for axis in range(len(constancy)):
            run = min(runs.contiguity[axis], stays.constancy[axis])
            side = min(run, runs.divisibility[axis], stays.each(axis))
            constancy[axis] = max(constancy[axis], side)
    ones = (1,) * len(constancy)
    return Axes(ones, ones, tuple(constancy))


def _select(operation: Operation, given: list[Axes]) -> Axes:
    condition, a, b = given
    joined = _join(a, b)
    runs = tuple(map(min, joined.contiguity, condition.constancy))
    known = [
        d if run == c else min(d, run) for d, run, c in zip(joined.divisibility, runs, joined.contiguity, strict=True)
    ]
    return Axes(runs, tuple(known), tuple(map(min, joined.constancy, condition.constancy)))


def _cast(operation: Operation, given: list[Axes]) -> Axes:
    before, after = operation.operands[0].type.element, operation.result.type.element
    whole = all(isinstance(element, Pointer) or element.is_integer for element in (before, after))
    if whole and after.itemsize >= before.itemsize:
        return given[0]
    return _alike(operation, given)


def _alike(operation: Operation, given: list[Axes]) -> Axes:
    """Of any operator on elements: equal operands give equal results."""
    plain = unknown(operation.result.type)
    if not given:
        return plain
    return replace(
        plain, constancy=tuple([min(numbers) for numbers in zip(*[a.constancy for a in given], strict=True)])
    )


RULES: dict[str, Rule] = {
    "constant": _constant, "arange": _arange, "splat": _splat, "broadcast": _broadcast, "expand_dims": _expand,
    "permute": _permute, "reshape": _reshape, "convert_layout": lambda operation, given: given[0],
    "add": _sum, "sub": _sum, "addptr": _sum, "mul": _product, "rem": _remainder, "idiv": _quotient,
    "shl": _shifted, "shr": _shifted, "lt": _compare, "le": _compare, "gt": _compare, "ge": _compare,
    "select": _select, "cast": _cast, "bitcast": _cast, "int_to_ptr": _cast, "ptr_to_int": _cast, "load": _alike,
}  # fmt: skip


def hinted(found: Axes, hints: Mapping[str, Any]) -> Axes:
    """With what the kernel's text promises."""

    def with_hint(name: str, known: tuple[int, ...]) -> tuple[int, ...]:
        promised = hints.get(name, ())
        promised = promised if isinstance(promised, tuple) else (promised,)
        if len(promised) != len(known):
            return known
        return tuple([max(old, power_of_two(new)) for old, new in zip(known, promised, strict=True)])

    contiguity, constancy = with_hint("contiguity", found.contiguity), with_hint("constancy", found.constancy)
    return replace(
        found, contiguity=contiguity, divisibility=with_hint("divisibility", found.divisibility), constancy=constancy
    )


# ---- the whole function


class Analysis:
    """Goes through a function; loops are gone through until what is taken to hold of carried values does."""

    def __init__(self, elementwise: Callable[[str], bool]) -> None:
        self.elementwise = elementwise
        self.found: dict[Value, Axes] = {}

    def block(self, block: Block) -> list[Axes]:
        """What the terminator gives."""
        for operation in block.operations[:-1]:
            self.operation(operation)
        return [self.found[operand] for operand in block.operations[-1].operands]

    def operation(self, operation: Operation) -> None:
        given = [self.found[operand] for operand in operation.operands]
        match operation.op:
            case "if":
                found = [self.block(region) for region in operation.regions]
                self._results(operation, [_join(a, b) for a, b in zip(*found, strict=True)])
            case "for":
                self._for(operation, given)
            case "while":
                self._while(operation)
            case "reduce" | "scan":
                self._forget(operation.regions[0])
                self._results(operation, [unknown(result.type) for result in operation.results])
            case op if op in RULES:
                self._computed(operation, [RULES[op](operation, given)], given)
            case op if self.elementwise(op):
                self._computed(operation, [_alike(operation, given)], given)
            case _:
                self._computed(operation, [unknown(result.type) for result in operation.results], given)

    def _results(self, operation: Operation, found: list[Axes]) -> None:
        for number, (value, axes) in enumerate(zip(operation.results, found, strict=True)):
            self.found[value] = hinted(axes, operation.attrs) if number == 0 else axes

    def _computed(self, operation: Operation, found: list[Axes], given: list[Axes]) -> None:
        least = least_of(operation, given)
        self._results(operation, [axes.bounded(least if i == 0 else None) for i, axes in enumerate(found)])

    def _forget(self, block: Block) -> None:
        for value in block.args:
            self.found[value] = unknown(value.type)
        for operation in block.walk():
            for value in operation.results:
                self.found[value] = unknown(value.type)

    def _for(self, operation: Operation, given: list[Axes]) -> None:
        (body,) = operation.regions
        lower, _, step, *carried = given
        rises = lower.least if step.is_natural else None
        self.found[body.args[0]] = _scalar(min(lower.divisibility[0], step.divisibility[0]), rises)
        for turn in range(_ROUNDS):
            if turn == _ROUNDS - 1:
                carried = [unknown(arg.type) for arg in body.args[1:]]
            self.found.update(zip(body.args[1:], carried, strict=True))
            joined = [_turned(a, b) for a, b in zip(carried, self.block(body), strict=True)]
            if joined == carried:
                break
            carried = joined
        self._results(operation, carried)

    def _while(self, operation: Operation) -> None:
        test, body = operation.regions
        self.found.update({arg: unknown(arg.type) for arg in (*test.args, *body.args)})
        self.block(test)
        self.block(body)
        self._results(operation, [unknown(result.type) for result in operation.results])


def analyse(function: Function, elementwise: Callable[[str], bool]) -> dict[Value, Axes]:
    """The facts of every value of a function."""
    analysis = Analysis(elementwise)
    for value in function.params:
        known = unknown(value.type).bounded(0)
        analysis.found[value] = hinted(known, function.hints.get(value.name, {}))
    analysis.block(function.body)
    return analysis.found
