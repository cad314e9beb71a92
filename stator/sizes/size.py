"""Sizes: integer expressions over symbols in a normal form, interned.

A `Size` is `const + Σ coefficient · product of atoms`; an atom is a `Symbol`, or one of `//`, `%`, `max`, `min` of two
extents where nothing simpler is known. An extent is a `Size` or an int, and whatever is constant is a plain int, so
code that meets no symbol never meets a `Size`.
Invariant: equal polynomials are one object, so `==` is identity and never raises; `low` and `high` enclose every value
for symbols in their ranges; `<` and its kin, `bool()` and `int()` are right for all of them, or raise `Undecided`.
Neighbours: `environment.py` makes symbols and decides by hint what the ranges leave open; `loop/index.py` has indices.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from stator.base.errors import Undecided
from stator.sizes.bounds import Range, of_atom, of_size, times
from stator.sizes.holding import hold
from stator.sizes.writing import ON_INTS, dump, evaluate, fold, python, symbols

#: The most terms of a sum, and characters of an operand of `//` and its like: longer ones are left undecided.
MOST_TERMS: Final = 64
MOST_TEXT: Final = 2000


class Symbol:
    """A number that is known at run time: `low` to `high` (None: any), both included; `hint` in the call met first."""

    __slots__ = ("__weakref__", "high", "hint", "low", "name", "order", "size")
    #: Tells it from a compound.
    op: ClassVar[None] = None
    name: str
    low: int | None
    high: int | None
    hint: int
    order: tuple[Any, ...]
    size: Size

    def __new__(cls, name: str, low: int | None = 2, high: int | None = None, hint: int = 2) -> Symbol:
        key = (name, low, high, hint)
        found = _SYMBOLS.get(key)
        if found is None:
            assert low is None or high is None or low < high, "a symbol has more than one value"
            found = object.__new__(cls)
            found.name, found.low, found.high, found.hint = key
            found.order = (0, len(name), name)
            found.size = _intern(0, ((((found, 1),), 1),))
            found = _SYMBOLS.setdefault(key, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.low, self.high, self.hint)

    def __repr__(self) -> str:
        return self.name


class Compound:
    """`left op right` for an op of `//`, `%`, `max`, `min`, where nothing simpler is known."""

    __slots__ = ("__weakref__", "left", "op", "order", "right")

    def __init__(self, op: str, left: Extent, right: Extent) -> None:
        self.op, self.left, self.right = op, left, right
        self.order = (1, op, repr(left), repr(right))
        if max(map(len, self.order[2:])) > MOST_TEXT:
            raise Undecided("an expression that has grown too long")

    @property
    def size(self) -> Size:
        return _intern(0, ((((self, 1),), 1),))

    def __repr__(self) -> str:
        return python(self.size)


Atom: TypeAlias = "Symbol | Compound"
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
Extent: TypeAlias = "int | Size"

_SYMBOLS: WeakValueDictionary[tuple[Any, ...], Symbol] = WeakValueDictionary()
_COMPOUNDS: WeakValueDictionary[tuple[Any, ...], Compound] = WeakValueDictionary()
_SIZES: WeakValueDictionary[tuple[int, Terms], Size] = WeakValueDictionary()


class Size:
    """An integer expression that is not constant. Build it from `symbol.size` and ints with `+ - * // %`."""

    __slots__ = ("__weakref__", "_bounds", "_hint", "_symbols", "_text", "const", "terms")
    const: int
    terms: Terms
    # What was found out about it, which the same few sizes of a graph are asked again and again.
    _bounds: Range | None
    _hint: int | None
    _symbols: frozenset[Symbol] | None
    _text: str | None

    # -- arithmetic --------------------------------------------------------------------------------

    def __add__(self, other: Extent) -> Extent:
        if isinstance(other, Size):
            return _normal(self.const + other.const, [*self.terms, *other.terms])
        return _intern(self.const + other, self.terms) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __mul__(self, other: Extent) -> Extent:
        if isinstance(other, Size):
            return _product(self, other)
        if not isinstance(other, int):
            return NotImplemented
        return _normal(self.const * other, [(monomial, c * other) for monomial, c in self.terms])

    __rmul__ = __mul__

    def __neg__(self) -> Extent:
        return self * -1

    def __sub__(self, other: Extent) -> Extent:
        return self + other * -1 if isinstance(other, int | Size) else NotImplemented

    def __rsub__(self, other: Extent) -> Extent:
        return self * -1 + other

    def __floordiv__(self, other: Extent) -> Extent:
        return _divide(self, other) if isinstance(other, int | Size) else NotImplemented

    def __rfloordiv__(self, other: int) -> Extent:
        return _divide(other, self)

    def __mod__(self, other: Extent) -> Extent:
        return _remainder(self, other) if isinstance(other, int | Size) else NotImplemented

    def __rmod__(self, other: int) -> Extent:
        return _remainder(other, self)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def low(self) -> int | None:
        """The lowest value it may take; None where no lowest is known."""
        return self.bounds()[0]

    @property
    def high(self) -> int | None:
        """The highest value it may take; None where no highest is known."""
        return self.bounds()[1]

    def bounds(self) -> Range:
        """`low` and `high`."""
        if self._bounds is None:
            self._bounds = of_size(self)
        return self._bounds

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol that it depends on."""
        return symbols(self)

    def divisible_by(self, divisor: Extent) -> bool:
        """Whether every value is known to be a multiple of `divisor`."""
        if isinstance(divisor, int):
            return divisor != 0 and _factor(self, abs(divisor)) == abs(divisor)
        return _exact(self, divisor) is not None

    def substitute(self, mapping: Mapping[Symbol, Extent]) -> Extent:
        """The same expression of other extents in place of symbols."""
        return substitute(self, mapping)

    def __lt__(self, other: Extent) -> bool:
        return Condition("<", self, other).decided()

    def __le__(self, other: Extent) -> bool:
        return Condition("<=", self, other).decided()

    def __gt__(self, other: Extent) -> bool:
        return Condition("<", other, self).decided()

    def __ge__(self, other: Extent) -> bool:
        return Condition("<=", other, self).decided()

    def __bool__(self) -> bool:
        return Condition("!=", self, 0).decided()

    def __index__(self) -> NoReturn:
        raise Undecided(f"the value of {self}")

    __int__ = __float__ = __index__

    def __repr__(self) -> str:
        return python(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (dump(self),)


# -- conditions ------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """`left op right` with op one of `== != < <=`."""

    op: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        return self.python()

    def python(self, names: Mapping[Symbol, str] | None = None) -> str:
        """As a Python expression; what has more symbols stands on the left, and constants on the right."""
        op, left, right = self
        if isinstance(left, int) and isinstance(right, Size):
            op, left, right = {"<": ">", "<=": ">="}.get(op, op), right, left
        return f"{python(left, names)} {op} {python(right, names)}"

    def negated(self) -> Condition:
        """What holds when this does not."""
        match self.op:
            case "<":
                return Condition("<=", self.right, self.left)
            case "<=":
                return Condition("<", self.right, self.left)
        return Condition("!=" if self.op == "==" else "==", self.left, self.right)

    def decided(self) -> bool:
        """Whether it holds, where that is so for all values in range; else raises `Undecided`."""
        answer = prove(self)
        if answer is None:
            raise Undecided(f"whether {self}")
        return answer

    def evaluate(self, values: Mapping[Symbol, int]) -> bool:
        """Whether it holds for these values."""
        return bool(COMPARISONS[self.op](evaluate(self.left, values), evaluate(self.right, values)))

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol on either side."""
        return symbols(self.left) | symbols(self.right)


COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
}


def prove(condition: Condition) -> bool | None:
    """Whether a condition holds for all values in range (True), for none (False), or neither is known (None)."""
    op, left, right = condition
    difference = right - left
    low, high = (difference, difference) if isinstance(difference, int) else difference.bounds()
    match op:
        case "<":
            return True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        case "<=":
            return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
        case "==" | "!=":
            if difference == 0:
                return op == "=="
            apart = (low is not None and low > 0) or (high is not None and high < 0) or _never_zero(difference)
            return (op == "!=") if apart else None
    raise ValueError(f"there is no condition {op!r}")


def _never_zero(difference: Extent) -> bool:
    """Whether a remainder shows that it is not 0: `2*s0 + 1`."""
    if isinstance(difference, int):
        return difference != 0
    common = reduce(gcd, [abs(coefficient) for _, coefficient in difference.terms])
    return difference.const % common != 0


def maximum(left: Extent, right: Extent) -> Extent:
    """The greater of two."""
    return _choice("max", left, right, prove(Condition("<=", right, left)), prove(Condition("<=", left, right)))


def minimum(left: Extent, right: Extent) -> Extent:
    """The smaller of two."""
    return _choice("min", left, right, prove(Condition("<=", left, right)), prove(Condition("<=", right, left)))


def _choice(op: str, left: Extent, right: Extent, is_left: bool | None, is_right: bool | None) -> Extent:
    if is_left:
        return left
    if is_right:
        return right
    first, second = sorted((left, right), key=repr)
    return _atom(op, first, second)


# -- substitution ----------------------------------------------------------------------------------


#: What the operations of expressions do with extents.
OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {**ON_INTS, "max": maximum, "min": minimum}


def substitute(x: Extent, mapping: Mapping[Symbol, Extent]) -> Extent:
    """`x` with other extents in place of symbols."""

    def leaf(symbol: Symbol | int) -> Extent:
        return mapping.get(symbol, symbol.size) if isinstance(symbol, Symbol) else symbol

    def apply(op: str, left: Extent, right: Extent) -> Extent:
        result: Extent = OPERATIONS[op](left, right)
        return result

    return fold(x, leaf, apply)


def load(data: Any) -> Extent:
    """The inverse of `dump`."""
    match data:
        case int():
            return data
        case ["symbol", name, low, high, hint]:
            return Symbol(name, low, high, hint).size
        case [op, left, right]:
            result: Extent = OPERATIONS[op](load(left), load(right))
            return result
    raise ValueError(f"{data!r} is no size")


# -- construction ----------------------------------------------------------------------------------


def _intern(const: int, terms: Terms) -> Size:
    key = (const, terms)
    found = _SIZES.get(key)
    if found is None:
        found = object.__new__(Size)
        found.const, found.terms = const, terms
        found._bounds = found._hint = found._symbols = found._text = None
        found = _SIZES.setdefault(key, found)
        hold(found)
    return found


def _normal(const: int, terms: list[tuple[Monomial, int]]) -> Extent:
    """Adds equal monomials up, drops zeros, joins `//` with `%`, and sorts."""
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    left = [(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]
    if not left:
        return const
    joined = _joined(const, left)
    if joined is not None:
        return joined
    if len(left) > MOST_TERMS:
        raise Undecided("a sum that has grown too long")
    left.sort(key=_term_order)
    return _intern(const, tuple(left))


def _term_order(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """Higher degrees first; then a fixed order, which makes the first term of a product the product of first terms."""
    return _monomial_order(term[0])


def _monomial_order(monomial: Monomial) -> tuple[Any, ...]:
    return (-sum([power for _, power in monomial]), *[(atom.order, -power) for atom, power in monomial])


def _joined(const: int, terms: list[tuple[Monomial, int]]) -> Extent | None:
    """`c*(x % n) + c*n*(x // n)` --> `c*x`, and `c*x - c*(x % n)` --> `c*n*(x // n)`, times any other factor."""
    for monomial, coefficient in terms:
        for atom, power in monomial:
            if not (isinstance(atom, Compound) and atom.op == "%" and power == 1):
                continue
            others = tuple(item for item in monomial if item[0] is not atom)
            scale = _intern(0, ((others, coefficient),)) if others else coefficient
            rest = [term for term in terms if term[0] != monomial]
            whole = _atom("//", atom.left, atom.right) * atom.right * scale
            if all(term in rest for term in _terms_of(whole)):
                return _normal(const, rest) - whole + atom.left * scale
            if isinstance(atom.left, Size) and all(term in rest for term in _terms_of(atom.left * scale * -1)):
                return _normal(const, rest) + atom.left * scale - whole
    return None


def _terms_of(x: Extent) -> Terms:
    return x.terms if isinstance(x, Size) else ()


def _product(left: Size, right: Size) -> Extent:
    if len(left.terms) * len(right.terms) > MOST_TERMS**2 // 4:
        raise Undecided("a product that has grown too long")
    terms = [(times(a, b), c * d) for a, c in left.terms for b, d in right.terms]
    if right.const:
        terms += [(monomial, c * right.const) for monomial, c in left.terms]
    if left.const:
        terms += [(monomial, c * left.const) for monomial, c in right.terms]
    return _normal(left.const * right.const, terms)


def _compound(op: str, left: Extent, right: Extent) -> Compound:
    key = (op, left, right)
    found = _COMPOUNDS.get(key)
    if found is None:
        found = _COMPOUNDS.setdefault(key, Compound(op, left, right))
        hold(found)
    return found


def _atom(op: str, left: Extent, right: Extent) -> Size:
    return _compound(op, left, right).size


# -- division --------------------------------------------------------------------------------------


def _divide(x: Extent, n: Extent) -> Extent:
    """Floor division; each step is an identity of the integers, tried from the cheapest."""
    if isinstance(n, int):
        if n == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if n < 0:
            return _divide(x * -1, -n)
        return x // n if isinstance(x, int) else _divide_by_number(x, n)
    if (low := n.low) is None or low <= 0:
        return _atom("//", x, n)
    return quotient_of(x, n)


def quotient_of(x: Extent, n: Extent) -> Extent:
    """`x // n` for an `n` that is positive, as whoever asks knows though ranges may not show it."""
    if isinstance(n, int):
        return _divide(x, n)
    if x == 0:
        return 0
    quotient, rest = _split(x, n)
    if quotient != 0:
        return quotient + quotient_of(rest, n)
    if prove(Condition("<=", 0, x)) and prove(Condition("<", x, n)):
        return 0
    atom = _compound("//", x, n)
    low, high = of_atom(atom)
    return low if low is not None and low == high else atom.size


def _remainder(x: Extent, n: Extent) -> Extent:
    if isinstance(n, int):
        if n == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if n < 0:
            return _remainder(x * -1, -n) * -1
        return x % n if isinstance(x, int) else _remainder_by_number(x, n)
    if (low := n.low) is None or low <= 0:
        return _atom("%", x, n)
    return remainder_of(x, n)


def remainder_of(x: Extent, n: Extent) -> Extent:
    """`x % n` for an `n` that is positive, as whoever asks knows though ranges may not show it."""
    if isinstance(n, int):
        return _remainder(x, n)
    rest = _whole(_split(x, n)[1], n)
    if rest != x:
        return remainder_of(rest, n)
    quotient = quotient_of(x, n)
    if isinstance(quotient, int):
        return x - quotient * n
    if x < 0 if isinstance(x, int) else x.terms[0][1] < 0:
        return remainder_of(x * -1 - 1, n) * -1 + (n - 1)
    return _atom("%", x, n)


def _split(x: Extent, n: Size) -> tuple[Extent, Extent]:
    """`x = quotient * n + rest`: exactly if it divides, else whole terms where `n` is one product."""
    if isinstance(x, int):
        return 0, x
    whole = _exact(x, n)
    if whole is not None:
        return whole, 0
    if n.const or len(n.terms) != 1:
        return 0, x
    quotient: Extent = 0
    for monomial, coefficient in x.terms:
        part = _exact(_intern(0, ((monomial, coefficient),)), n)
        if part is not None:
            quotient = quotient + part
    return quotient, x - quotient * n


def _exact(x: Extent, n: Size) -> Extent | None:
    """The polynomial `x / n`, where it has whole coefficients and no remainder."""
    if isinstance(x, int):
        return 0 if x == 0 else None
    quotient: Extent = 0
    lead, factor = n.terms[0]
    while isinstance(x, Size):
        monomial, coefficient = x.terms[0]
        powers = dict(monomial)
        for atom, power in lead:
            powers[atom] = powers.get(atom, 0) - power
        if coefficient % factor or any(power < 0 for power in powers.values()):
            return None
        rest = tuple((atom, power) for atom, power in powers.items() if power)
        part = _normal(0, [(rest, coefficient // factor)]) if rest else coefficient // factor
        before = _monomial_order(monomial)
        quotient, x = quotient + part, x - part * n
        if isinstance(x, Size) and _monomial_order(x.terms[0][0]) <= before:
            return None  # a rewrite of compounds got in the way
    return quotient if x == 0 else None


def _divide_by_number(x: Size, n: int) -> Extent:
    if n == 1:
        return x
    low, high = x.bounds()
    if low is not None and high is not None and low // n == high // n:
        return low // n
    rest = _reduced(x, n)
    if rest is not x:
        return _exactly(x - rest, n) + _divide(rest, n)
    common = reduce(gcd, [abs(coefficient) for _, coefficient in x.terms], n)
    if common > 1:  # (g*y + r) // (g*n) = y // n for 0 <= r < g
        return _divide(_exactly(x - x.const % common, common), n // common)
    if x.terms[0][1] < 0:  # round up: -((n - 1 - x) // n)
        return _divide(x * -1 + (n - 1), n) * -1
    if len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        atom, power = x.terms[0][0][0]
        if isinstance(atom, Compound) and atom.op == "//" and power == 1 and isinstance(atom.right, int):
            return _divide(atom.left + atom.right * x.const, atom.right * n)
    return _atom("//", x, n)


def _remainder_by_number(x: Size, n: int) -> Extent:
    low, high = x.bounds()
    if low is not None and high is not None and low >= 0 and high < n:
        return x
    if x.divisible_by(n):
        return 0
    whole = _whole(x, n)
    rest = _reduced(whole, n) if isinstance(whole, Size) else whole
    if rest is not x:
        return _remainder(rest, n)
    common = reduce(gcd, [abs(coefficient) for _, coefficient in x.terms], n)
    if common > 1:  # (g*y + r) % (g*n) = g * (y % n) + r for 0 <= r < g
        offset = x.const % common
        return _remainder(_exactly(x - offset, common), n // common) * common + offset
    if x.terms[0][1] < 0:
        return _remainder(x * -1 - 1, n) * -1 + (n - 1)
    return _atom("%", x, n)


def _whole(x: Extent, n: Extent) -> Extent:
    """What has the same remainder by `n`: `a` in place of `a % n`, and of remainders by multiples of `n`."""
    for monomial, coefficient in _terms_of(x):
        (atom, power), *others = monomial
        if others or power != 1 or not isinstance(atom, Compound) or atom.op != "%":
            continue
        if atom.right == n or (isinstance(n, int) and isinstance(atom.right, int) and atom.right % n == 0):
            return _whole(x + (atom.left - atom.size) * coefficient, n)
    return x


def _reduced(x: Size, n: int) -> Extent:
    """`x` less multiples of `n`: no coefficient above `n`, and a constant in 0 … n-1; `x` itself if it is so."""
    if 0 <= x.const < n and all(c % n and abs(c) < n for _, c in x.terms):
        return x
    return _normal(x.const % n, [(m, c if c % n and abs(c) < n else c % n) for m, c in x.terms])


def _exactly(x: Extent, n: int) -> Extent:
    """`x / n` for an `x` whose coefficients are all multiples of `n`."""
    if isinstance(x, int):
        return x // n
    return _normal(x.const // n, [(monomial, coefficient // n) for monomial, coefficient in x.terms])


def _factor(x: Extent, n: int) -> int:
    """A divisor of `n` by which every value of `x` is known to be divisible."""
    if isinstance(x, int):
        return gcd(x, n)
    found = gcd(x.const, n)
    for monomial, coefficient in x.terms:
        product = coefficient
        for atom, power in monomial:
            if isinstance(atom, Compound) and atom.op != "//":
                product *= gcd(_factor(atom.left, n), _factor(atom.right, n)) ** power
        found = gcd(found, product)
    return found


# -- bounds ----------------------------------------------------------------------------------------
