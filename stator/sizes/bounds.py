"""Ranges of size expressions: interval arithmetic, polynomials measured from their lowest point, cases of choices.

Neighbours: `size.py` keeps what is found here with each size.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from stator.sizes.size import Atom, Compound, Extent, Monomial, Size, Terms

#: None: there is no bound on this side, or none is known.
Bound: TypeAlias = "int | None"
Range: TypeAlias = tuple[Bound, Bound]

#: The most `max` and `min` that bounds are found for case by case.
MOST_CHOICES: Final = 6
#: The most times a size is taken to measure its quotients together.
MOST_SCALE: Final = 1 << 12


def of_size(x: Size) -> Range:
    """Encloses the values."""
    choice = next((a for m, _ in x.terms for a, _ in m if a.op in ("max", "min")), None)
    if choice is not None and len(_choices(x, set())) <= MOST_CHOICES:
        return _choice_bounds(x, choice)
    low, high = of_terms(x.const, x.terms)
    if low is None and (least := _in_finer_quotients(x, down=True)) is not x:
        low = of_extent(least)[0]
    if high is None and (most := _in_finer_quotients(x, down=False)) is not x:
        high = of_extent(most)[1]
    scale = _scale(x) if low is None or high is None else 1
    if low is None and (least := _without_quotients(x, scale, down=True)) is not x:
        bottom = of_extent(least)[0]
        low = None if bottom is None else -(-bottom // scale)
    if high is None and (most := _without_quotients(x, scale, down=False)) is not x:
        top = of_extent(most)[1]
        high = None if top is None else top // scale
    return low, high


def of_terms(const: int, terms: Terms) -> Range:
    """The range of `const + terms`: by the ranges of the atoms, and with every atom measured from its lowest value."""
    low, high = _sum(const, [(_monomial_range(monomial), c) for monomial, c in terms])
    if (low is None or high is None) and (shifted := _from_lowest(const, terms)) is not None:
        start, rest = shifted
        other = _sum(start, [(_monomial_range(m, from_lowest=True), c) for m, c in rest.items()])
        low, high = (other[0] if low is None else low), (other[1] if high is None else high)
    return low, high


def of_extent(x: Extent) -> Range:
    """Encloses the values of a number or a size."""
    return (x, x) if isinstance(x, int) else x.bounds()


def join(first: Range, second: Range) -> Range:
    """The smallest range that encloses both."""
    low = None if first[0] is None or second[0] is None else min(first[0], second[0])
    high = None if first[1] is None or second[1] is None else max(first[1], second[1])
    return low, high


def of_atom(atom: Atom) -> Range:
    """Encloses the values of a symbol, choice, remainder or quotient; unbounded where a divisor may not be positive."""
    if atom.op is None:
        return atom.low, atom.high
    (low, high), (least, most) = of_extent(atom.left), of_extent(atom.right)
    match atom.op:
        case "max" | "min":
            return join((low, high), (least, most))
        case "%":
            return (None, None) if least is None or least <= 0 else (0, None if most is None else most - 1)
    if least is None or least <= 0:
        return None, None
    # A quotient is lowest where a positive dividend meets the greatest divisor, a negative one the least.
    bottom = None if low is None else low // least if low < 0 else 0 if most is None else low // most
    top = None if high is None else high // least if high >= 0 else -1 if most is None else high // most
    return bottom, top


def _monomial_range(monomial: Monomial, from_lowest: bool = False) -> Range:
    """The range of a product; with `from_lowest` every atom counts from its lowest value."""
    low: Bound = 1
    high: Bound = 1
    for atom, power in monomial:
        bottom, top = of_atom(atom)
        if from_lowest:
            assert bottom is not None
            bottom, top = 0, None if top is None else top - bottom
        for _ in range(power):
            low, high = _multiply((low, high), (bottom, top))
    return low, high


def _multiply(first: Range, second: Range) -> Range:
    a, b = first
    c, d = second
    if a is not None and c is not None and a >= 0 and c >= 0:
        top = 0 if b == 0 or d == 0 else None if b is None or d is None else b * d
        return a * c, top
    if a is None or b is None or c is None or d is None:
        return None, None
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _sum(const: int, parts: list[tuple[Range, int]]) -> Range:
    low: Bound = const
    high: Bound = const
    for (bottom, top), coefficient in parts:
        if coefficient < 0:
            bottom, top = top, bottom
        low = None if low is None or bottom is None else low + coefficient * bottom
        high = None if high is None or top is None else high + coefficient * top
    return low, high


def _from_lowest(const: int, terms: Terms) -> tuple[int, dict[Monomial, int]] | None:
    """The same as a polynomial in `atom - lowest value of atom`; None where an atom has no lowest value."""
    total: dict[Monomial, int] = {(): const}
    for monomial, coefficient in terms:
        expanded: dict[Monomial, int] = {(): coefficient}
        for atom, power in monomial:
            bottom = of_atom(atom)[0]
            if bottom is None:
                return None
            for _ in range(power):
                stepped: dict[Monomial, int] = {}
                for part, factor in expanded.items():
                    stepped[part] = stepped.get(part, 0) + factor * bottom
                    longer = times(part, ((atom, 1),))
                    stepped[longer] = stepped.get(longer, 0) + factor
                expanded = stepped
        for part, factor in expanded.items():
            total[part] = total.get(part, 0) + factor
    return total.pop(()), {part: factor for part, factor in total.items() if factor}


def times(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].order))


def _scale(x: Size) -> int:
    """How many times `x` has for each of its quotients a multiple of what it divides by; 1 where that is too much."""
    divisors = [lcm(c, n) // abs(c) for c, _, n, _ in _quotients(x)]
    scale = lcm(*divisors)
    return scale if scale <= MOST_SCALE else 1


def _quotients(x: Size) -> Iterator[tuple[int, Compound, int, Extent]]:
    """The terms with a quotient by a number: how often it is there, and what it is times if that is not negative."""
    for monomial, c in x.terms:
        for atom, power in monomial:
            if power == 1 and atom.op == "//" and isinstance(atom.right, int) and atom.right > 0:
                others: Extent = 1
                for other, times_it in monomial:
                    for _ in range(times_it if other is not atom else 0):
                        others = others * other.size
                if (low := of_extent(others)[0]) is not None and low >= 0:
                    yield c, atom, atom.right, others
                break


def _without_quotients(x: Size, scale: int, down: bool) -> Extent:
    """At most (`down`) or at least `scale * x`, by what its quotients are of: `n * (a // n)` is in a-n+1 … a."""
    if not any(True for _ in _quotients(x)):
        return x
    result: Extent = x * scale
    for c, atom, n, others in _quotients(x):
        c *= scale
        if c % n == 0:
            rest = n - 1 if (c > 0) is down else 0
            result = result + ((atom.left - rest) * (c // n) - atom.size * c) * others
    return result


def _in_finer_quotients(x: Size, down: bool) -> Extent:
    """At most (`down`) or at least `x`, by finer quotients: `k * ((a + j*n) // (k*n))` is in a//n+j-k+1 … a//n+j."""
    found = list(_quotients(x))
    result: Extent = x
    for c, atom, n, others in found:
        for _, finer, m, _ in found:
            k, apart = n // m, atom.left - finer.left
            if k > 1 and n == k * m and c % k == 0 and isinstance(apart, int) and apart % m == 0:
                rest = k - 1 if (c > 0) is down else 0
                result = result + ((finer.size + (apart // m - rest)) * (c // k) - atom.size * c) * others
                break
    return result


def _choices(x: Extent, found: set[Compound]) -> set[Compound]:
    """The `max` and `min` that are met in `x`, until there are too many."""
    atoms = () if isinstance(x, int) else [atom for monomial, _ in x.terms for atom, _ in monomial]
    for atom in atoms:
        if atom.op is not None and atom not in found and len(found) <= MOST_CHOICES:
            if atom.op in ("max", "min"):
                found.add(atom)
            _choices(atom.left, found)
            _choices(atom.right, found)
    return found


def _choice_bounds(x: Size, choice: Compound) -> Range:
    """The value is that of one of the two cases, and of the greater or smaller where the choice is a term."""
    cases = [of_extent(_replaced(x, choice, side)) for side in (choice.left, choice.right)]
    low, high = join(*cases)
    uses = [(monomial, c) for monomial, c in x.terms if any(atom is choice for atom, _ in monomial)]
    if len(uses) == 1 and uses[0][0] == ((choice, 1),):
        if (choice.op == "max") is (uses[0][1] > 0):
            low = max([bottom for bottom, _ in cases if bottom is not None], default=None)
        else:
            high = min([top for _, top in cases if top is not None], default=None)
    return low, high


def _replaced(x: Size, atom: Atom, by: Extent) -> Extent:
    """`x` with an extent in place of an atom of its own terms."""
    result: Extent = x.const
    for monomial, coefficient in x.terms:
        part: Extent = coefficient
        for other, power in monomial:
            for _ in range(power):
                part = part * (by if other is atom else other.size)
        result = result + part
    return result
