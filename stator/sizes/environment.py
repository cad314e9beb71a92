"""The environment of one compilation: its symbols, and what has been assumed about them.

Whoever meets a condition on sizes asks `decide`. What ranges and earlier conditions imply costs nothing; the rest is
decided as it was in the call at hand, and recorded, with the user's line and the reason: the recorded conditions are
the guards of what is compiled. `specialise` records that a size is what it is in this call.
Invariant: code compiled under an environment is right for every call that satisfies `guards()`.
Neighbours: `size.py`; `fake/symbolic.py` asks for torch, `capture/dynamic.py` makes symbols and turns `guards()` into
guards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from stator.base.errors import Undecided
from stator.sizes.derived import Part, derived, part_name
from stator.sizes.size import Compound, Condition, Extent, Size, Symbol, prove, substitute
from stator.sizes.writing import LEAST, MOST, evaluate, fits, operands, symbols

#: The values of a size at a few places.
Probed: TypeAlias = tuple[int | None, ...]


class Recorded(NamedTuple):
    """A condition that was assumed, by which line of the user's, and what for."""

    condition: Condition
    location: Any
    reason: str


def nowhere() -> Any:
    """Where something is decided that no line of the user's asks for."""
    return None


class Environment:
    """Makes symbols, decides conditions on them, and keeps what has been decided."""

    __slots__ = (
        "_answers", "_closed", "_current_sizes", "_distinct", "_facts", "_fitting", "_now", "_numbers", "_open",
        "_same", "_shared", "_simple", "conditions", "has_literals", "known_literals", "locate", "marked", "places",
    )  # fmt: skip

    def __init__(self, locate: Callable[[], Any] = nowhere) -> None:
        #: Tells the user's line at which something is decided.
        self.locate = locate
        #: Every symbol, and all the places where its value is found in a call; the first is the one it is read from.
        self.places: dict[Symbol, list[Hashable]] = {}
        #: What became guards, in the order in which it was decided.
        self.conditions: list[Recorded] = []
        #: Symbols that the user asked for: they must not be fixed.
        self.marked: set[Symbol] = set()
        #: Whether tensors have been made of symbolic numbers, and whether such numbers are to be fixed instead.
        self.has_literals = self.known_literals = False
        # Symbols by hint, for sizes that nobody marked.
        self._shared: dict[int, Symbol] = {}
        # What symbols are known to be now: a narrower symbol, a multiple of one, another extent.
        self._now: dict[Symbol, Extent] = {}
        # Sizes known to be a number, which tells no symbol apart: (s0 + 2) // 4 is 1 for four of them.
        self._numbers: dict[Size, int] = {}
        # What sizes are by that; every node that torch holds of a size asks for it.
        self._simple: dict[Size, Extent] = {}
        self._current_sizes: dict[Size, Extent] = {}
        # What is written for symbols by that, as far as they have to be; None until it is asked for.
        self._same: dict[Symbol, Extent] | None = None
        # Extents known to be at least 0, each with its values at the probes, and such as are known not to be 0.
        self._facts: dict[Size, Probed] = {}
        self._distinct: set[Size] = set()
        # What was asked before, as an operator and the difference of its sides: what is proven stays so, while what is
        # open may be decided by what is learnt next. The same few questions are asked of every tensor of a graph.
        self._answers: dict[tuple[str, Extent], bool] = {}
        self._open: set[tuple[str, Extent]] = set()
        # Extents known to fit into 64 bits.
        self._fitting: set[Size] = set()
        # For whom it was open, once the guards have been made of it.
        self._closed = ""

    def close(self, whose: str) -> None:
        """Nothing more can be decided: the guards are made of what was."""
        self._closed = whose

    def symbol(
        self,
        hint: int,
        place: Hashable,
        low: int | None = 2,
        high: int | None = None,
        *,
        marked: bool = False,
        shared: bool = True,
    ) -> Symbol:
        """The symbol of a number that is found at `place`. Equal sizes share one, unless marked or of another range."""
        shared = shared and not marked
        found = self.partner(hint, place, low, high) if shared else None
        if found is not None:
            self.places[found].append(place)
            return found
        made = Symbol(f"s{len(self.places)}", low, high, hint)
        self.places[made] = [place]
        if marked:
            self.marked.add(made)
        if shared:
            self._shared.setdefault(hint, made)
        return made

    def partner(self, hint: int, place: Hashable, low: int | None, high: int | None) -> Symbol | None:
        """The symbol that a size may share."""
        found = self._shared.get(hint)
        return found if found is not None and (found.low, found.high) == (low, high) else None

    # -- deciding ----------------------------------------------------------------------------------

    def prove(self, condition: Condition) -> bool | None:
        """Whether a condition follows from ranges and what has been assumed (True), or its opposite does (False)."""
        op, left, right = self._current(condition)
        question = op, right - left
        if question in self._open:
            return None
        answer = self._answers.get(question)
        if answer is None:
            answer = prove(Condition(op, left, right))
            if answer is None and (self._facts or self._distinct):
                answer = self._by_facts(*question)
            if answer is None:
                self._open.add(question)
            else:
                self._answers[question] = answer
        return answer

    def _by_facts(self, op: str, difference: Extent) -> bool | None:
        """What facts say of `0 op difference`, which ranges leave open."""
        assert isinstance(difference, Size), "a constant difference is decided"
        if op not in ("==", "!="):
            strict = int(op == "<")
            if self._follows(difference - strict):
                return True
            return False if self._follows(strict - 1 - difference) else None
        if difference in self._distinct or any(self._follows(side * difference - 1) for side in (1, -1)):
            return op == "!="
        return (op == "==") if all(self._follows(side * difference) for side in (1, -1)) else None

    def _follows(self, least: Extent) -> bool:
        """Whether `least >= 0` follows from a single fact: it is nowhere less than what is known to be at least 0.

        That takes ranges of polynomials, which is slow, so facts that are greater somewhere are left out.
        """
        found = _probed(least)
        return any(_nowhere_less(found, there) and _at_least_0(least - fact) for fact, there in self._facts.items())

    def decide(self, condition: Condition, reason: str = "") -> bool:
        """Whether a condition holds; where that is open, as in the call at hand, which is recorded."""
        answer = self.prove(condition)
        if answer is not None:
            return answer
        if self._closed:
            raise Undecided(f"{condition}, which {self._closed} asks after it was to compile the graph")
        holds = condition.evaluate({symbol: symbol.hint for symbol in condition.symbols})
        if not (fits(condition.left) and fits(condition.right)):
            for symbol in sorted(condition.symbols, key=lambda symbol: symbol.order):
                self.specialise(symbol.size, reason)
            return holds
        assumed = condition if holds else condition.negated()
        self.conditions.append(Recorded(assumed, self.locate(), reason))
        self._learn(self._current(assumed))
        return holds

    def specialise(self, size: Extent, reason: str = "") -> int:
        """The number that a size is in the call at hand, from now on fixed."""
        if not isinstance(size, Size):
            return size
        value = evaluate(size, {symbol: symbol.hint for symbol in size.symbols})
        self.decide(Condition("==", size, value), reason)
        return value

    def fitting(self, size: Extent, reason: str = "") -> Extent:
        """The size, guarded so that computing it with 64 bits meets no number that does not fit; else its number.

        What is divided or compared within it need not show in its own range: `k*k % 1000`. What computes a size to
        compare it fails on a greater number, so a comparison with one limit guards both, and all that leads to it.
        """
        size = self.simplify(size)
        if not isinstance(size, Size) or size in self._fitting:
            return size
        if not fits(size):
            return self.specialise(size, reason)
        for part in (*operands(size), size, *[symbol.size for symbol in size.symbols if symbol.low is None]):
            limits = Condition("<=", part, MOST), Condition("<=", LEAST, part)
            unknown = [limit for limit in limits if part not in self._fitting and self.prove(limit) is None]
            self._fitting.add(part)
            if unknown and not _small(part):
                self.decide(unknown[0], reason)
                self._fitting.update(symbol.size for symbol in part.symbols)
        return size

    def simplify(self, size: Extent) -> Extent:
        """The size with numbers for what has been assumed to be one, and one symbol for those that are equal."""
        if not isinstance(size, Size) or not (self._now or self._numbers):
            return size
        found = self._simple.get(size)
        if found is None:
            found = self._as_known(size)
            found = self._numbers.get(found, found) if isinstance(found, Size) else found
            if not isinstance(found, int):
                if self._same is None:
                    self._same = self._equal_symbols()
                found = substitute(size, self._same) if self._same else size
            self._simple[size] = found
        return found

    def known(self, size: Extent) -> Extent:
        """The size in terms of all that is known of its symbols, some of which no input tells: see `derived.py`."""
        if not isinstance(size, Size) or not (self._now or self._numbers):
            return size
        found = self._as_known(size)
        return self._numbers.get(found, found) if isinstance(found, Size) else found

    def parts(self) -> dict[Symbol, Part]:
        """What sizes as `known` gives them have for symbols that inputs tell."""
        return derived(self._now, self.places)

    def _equal_symbols(self) -> dict[Symbol, Extent]:
        """What is to be written for a symbol: its number, or the first symbol that is known to be the same."""
        first: dict[Extent, Symbol] = {}
        found: dict[Symbol, Extent] = {}
        for symbol in self.places:
            now = self._now.get(symbol, symbol.size)
            same = now if isinstance(now, int) else first.setdefault(now, symbol).size
            if same is not symbol.size:
                found[symbol] = same
        return found

    # -- what was assumed ----------------------------------------------------------------------------

    def guards(self) -> list[Recorded]:
        """Every condition that a call has to satisfy, the ranges of the symbols first."""
        ranges = []
        for symbol in self.places:
            if symbol.low is not None and symbol.low > 0:
                ranges.append(Recorded(Condition("<=", symbol.low, symbol.size), None, "the range of a size"))
            if symbol.high is not None:
                ranges.append(Recorded(Condition("<=", symbol.size, symbol.high), None, "the range of a size"))
        return ranges + self.conditions

    def fixed(self) -> dict[Symbol, Recorded]:
        """The symbols that are only one number, and the condition that made them so."""
        found: dict[Symbol, Recorded] = {}
        for symbol in self.places:
            if isinstance(self.simplify(symbol.size), int):
                about = [recorded for recorded in self.conditions if symbol in recorded.condition.symbols]
                found[symbol] = next((r for r in about if r.condition.op == "=="), (about or self.conditions)[-1])
        return found

    def demanded(self) -> dict[Symbol, Recorded]:
        """The fixed symbols that equalities alone fix; others are one number by all that the program has branched on,
        as which it takes others too, and so are those that were compared with such a size after it was a number."""
        alone = Environment()
        for condition in [recorded.condition for recorded in self.conditions if recorded.condition.op == "=="]:
            condition = alone._current(condition)
            difference = condition.right - condition.left
            atoms = [] if isinstance(difference, int) else [atom for term, _ in difference.terms for atom, _ in term]
            if atoms and all(isinstance(atom, Symbol) for atom in atoms):
                alone._learn(condition)
        fixed = self.fixed()
        branched = {symbol.hint for symbol in fixed if type(alone._now.get(symbol)) is not int}
        return {symbol: recorded for symbol, recorded in fixed.items() if symbol.hint not in branched}

    # -- learning ------------------------------------------------------------------------------------

    def _current(self, condition: Condition) -> Condition:
        if not self._now:
            return condition
        op, left, right = condition
        return Condition(op, self._as_known(left), self._as_known(right))

    def _as_known(self, size: Extent) -> Extent:
        """What a size is, as far as symbols stand for something else; it is asked of the same ones again and again."""
        if not isinstance(size, Size):
            return size
        found = self._current_sizes.get(size)
        if found is None:
            found = self._current_sizes[size] = substitute(size, self._now)
        return found

    def _learn(self, condition: Condition) -> None:
        """Keeps what a condition, which holds, says about symbols."""
        self._open.clear()
        op, left, right = condition
        difference = right - left
        assert isinstance(difference, Size), "a constant difference is decided"
        match op:
            case "==":
                solved = _solved(difference)
                if solved is not None:
                    self._replace(*solved)
                else:  # a product, say: no symbol stands for another, but it is neither less nor more
                    for side in (difference, difference * -1):
                        side = substitute(side, self._now)
                        if isinstance(side, Size) and not self._narrow(side, None):
                            self._keep([side])
                    self._number(substitute(left, self._now), substitute(right, self._now))
            case "!=" if (other := _other_of_two(difference)) is not None:
                self._learn(Condition("==", difference, other))
            case "!=":
                self._narrow(difference, 0)
                self._narrow(difference * -1, 0)
                self._distinct |= {side for side in (difference, difference * -1) if isinstance(side, Size)}
            case _:
                for least in _each(difference - int(op == "<")):
                    self._learn_least(substitute(least, self._now))

    def _learn_least(self, least: Extent) -> None:
        """Keeps what `least >= 0`, which holds, says."""
        if not isinstance(least, Size):
            return
        if least.high == 0:
            self._learn(Condition("==", least, 0))
        elif not self._narrow(least, None):
            self._keep([least])

    def _number(self, left: Extent, right: Extent) -> None:
        """What equals a number is one from now on: of a broadcast dim, whose extent is 1, others ask that again."""
        for size, number in ((left, right), (right, left)):
            if isinstance(size, Size) and isinstance(number, int):
                self._numbers[size] = number
                self._simple.clear()

    def _keep(self, facts: Iterable[Extent]) -> None:
        """Adds facts; what became a number says nothing."""
        self._facts.update((fact, _probed(fact)) for fact in facts if isinstance(fact, Size))

    def _narrow(self, least: Extent, excluded: int | None) -> bool:
        """Narrows the range of a symbol that alone makes up `least >= 0` (or `least != 0`, where a bound is it)."""
        linear = _linear(least if excluded is not None else _of_dividend(least))
        if linear is None:
            beside = _beside(least) if excluded is not None else None
            return beside is not None and self._narrow(beside, None)
        factor, symbol, const = linear
        low, high = symbol.low, symbol.high
        if excluded is not None:
            bound = -const // factor if const % factor == 0 else None
            low = low + 1 if low is not None and bound == low else low
            high = high - 1 if high is not None and bound == high else high
        elif factor > 0:
            bottom = -(const // factor)
            low = bottom if low is None else max(low, bottom)
        else:
            top = const // -factor
            high = top if high is None else min(high, top)
        if (low, high) != (symbol.low, symbol.high):
            one = low is not None and low == high
            self._replace(symbol, low if one and low is not None else Symbol(symbol.name, low, high, symbol.hint).size)
        return True

    def _replace(self, symbol: Symbol, by: Extent) -> None:
        """From now on a symbol stands for something else that it is known to equal."""
        self._simple.clear()
        self._current_sizes.clear()
        self._same = None
        mapping = {symbol: by}
        self._now = {key: substitute(value, mapping) for key, value in self._now.items()}
        self._now.setdefault(symbol, by)
        numbers, self._numbers = self._numbers, {}
        for size, number in numbers.items():
            self._number(substitute(size, mapping), number)
        facts, self._facts = self._facts, {}
        self._keep(substitute(fact, mapping) for fact in facts)
        distinct = [substitute(side, mapping) for side in self._distinct]
        self._distinct = {side for side in distinct if isinstance(side, Size)}


#: Sizes of tensors are taken to be below this when they are added up; their products are guarded.
_GREATEST_SIZE = 2**46


def _small(size: Size) -> bool:
    """Whether it is a sum of sizes of tensors, few enough to fit."""
    plain = all(len(monomial) == 1 and monomial[0][1] == 1 for monomial, _ in size.terms)
    total = abs(size.const) + sum([abs(coefficient) for _, coefficient in size.terms]) * _GREATEST_SIZE
    return plain and total <= MOST and all(symbol.low is not None for symbol in size.symbols)


def _at_least_0(extent: Extent) -> bool:
    return bool(prove(Condition("<=", 0, extent)))


def _far(symbol: Symbol) -> int:
    """A value far from others within the range of a symbol, another one for each name."""
    low, far = symbol.low or 0, 10**4 + 2 * int.from_bytes(symbol.name.encode()[-2:]) + 1
    return max(far, low) if symbol.high is None else min(max(far, low), symbol.high)


#: Where sizes are compared before ranges are: at the call at hand, at the lowest values, and far from both.
_PROBES: Final[tuple[Callable[[Symbol], int], ...]] = (
    lambda symbol: symbol.hint,
    lambda symbol: symbol.hint if symbol.low is None else symbol.low,
    _far,
)


def _probed(size: Extent) -> Probed:
    """The values of a size at the probes; None where it divides by zero."""
    found: list[int | None] = []
    for probe in _PROBES:
        try:
            found.append(evaluate(size, {symbol: probe(symbol) for symbol in symbols(size)}))
        except ZeroDivisionError:
            found.append(None)
    return tuple(found)


def _nowhere_less(left: Probed, right: Probed) -> bool:
    """Whether a size may be at least another one everywhere, by their values at the probes."""
    return all(a is None or b is None or a >= b for a, b in zip(left, right, strict=True))


def _linear(size: Extent) -> tuple[int, Symbol, int] | None:
    """`factor * symbol + const`, where a size is that."""
    if not isinstance(size, Size) or len(size.terms) != 1:
        return None
    monomial, factor = size.terms[0]
    (atom, power), *others = monomial
    return (factor, atom, size.const) if isinstance(atom, Symbol) and power == 1 and not others else None


def _quotient(size: Extent) -> tuple[int, Compound, int] | None:
    """`factor * (x // n) + const` for a positive int n, where a size is that."""
    if not isinstance(size, Size) or len(size.terms) != 1:
        return None
    monomial, factor = size.terms[0]
    (atom, power), *others = monomial
    if others or power != 1 or not isinstance(atom, Compound) or atom.op != "//":
        return None
    return (factor, atom, size.const) if isinstance(atom.right, int) and atom.right > 0 else None


def _of_dividend(least: Extent) -> Extent:
    """What is at least 0 where that is: `x // n - k`  -->  `x - n*k`, and `k - x // n`  -->  `n*k + n - 1 - x`."""
    while (found := _quotient(least)) is not None:
        factor, atom, const = found
        x, n = atom.left, atom.right
        least = x + const // factor * n if factor > 0 else const // -factor * n + (n - 1) - x
    return least


def _each(least: Extent) -> Iterator[Extent]:
    """All that is at least 0 where that is: both, where it is the lesser of two, or where the greater is taken away."""
    match least:
        case Size(terms=((((Compound(op="min" | "max" as op) as atom, 1),), factor),)) if (op == "min") is (factor > 0):
            for side in (atom.left, atom.right):
                yield from _each(side * factor + least.const)
        case _:
            yield least


def _other_of_two(nonzero: Size) -> int | None:
    """What is left of two values where one is 0: `x % 2 - 1` is -1 then."""
    low, high = nonzero.bounds()
    if low is None or high != low + 1 or 0 not in (low, high):
        return None
    return low + high


def _beside(nonzero: Extent) -> Extent | None:
    """What is at least 0 where that is not 0, as a quotient is at an end of its range: `x // n - low - 1`, say."""
    found = _quotient(nonzero)
    if found is None or found[2] % found[0]:
        return None
    factor, atom, const = found
    excluded = -const // factor
    low, high = atom.size.bounds()
    return atom.size - (low + 1) if low == excluded else (high - 1) - atom.size if high == excluded else None


def _solved(zero: Size) -> tuple[Symbol, Extent] | None:
    """A symbol, and what it is if `zero` is 0."""
    linear = _linear(zero)
    if linear is not None:
        factor, symbol, const = linear
        return symbol, -const // factor
    for monomial, coefficient in zero.terms:
        (atom, power), *others = monomial
        if isinstance(atom, Symbol) and power == 1 and not others and abs(coefficient) == 1:
            rest = zero - atom.size * coefficient
            if isinstance(rest, Size) and atom not in rest.symbols:
                return atom, rest * -coefficient
    return _multiple(zero)


def _multiple(zero: Size) -> tuple[Symbol, Extent] | None:
    """`symbol % n == 0`, or `(symbol + 3) % n == 3`, makes the symbol `n` times another one."""
    if len(zero.terms) != 1 or abs(zero.terms[0][1]) != 1:
        return None
    ((atom, power), *others), sign = zero.terms[0]
    if others or power != 1 or isinstance(atom, Symbol) or atom.op != "%" or not isinstance(atom.right, int):
        return None
    inner, n = _linear(atom.left), atom.right
    if inner is None or inner[0] != 1 or (-zero.const * sign - inner[2]) % n:
        return None
    symbol = inner[1]
    low = None if symbol.low is None else -(-symbol.low // n)
    high = None if symbol.high is None else symbol.high // n
    if low is not None and low == high:
        return symbol, low * n
    return symbol, Symbol(part_name(symbol, n), low, high, symbol.hint // n).size * n
