"""Index algebra: integer expressions of loop axes in a normal form, interned.

An `Index` is `const + Σ coefficient · atom`; an atom is an `Axis`, a `FloorDiv`, a `Mod` or an `Indirect` (an integer
that is loaded at run time). Equality is identity. `//` and `%` take a positive int and round towards minus infinity.
Invariant: two terms never share an atom, no coefficient is 0, terms are in a deterministic order (large coefficients
first), and `bounds()` encloses every value for axes within their sizes.
Neighbours: `expr` (an `Indirect` holds an `Expr`, and `Expr`s hold indices); nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, Protocol, TypeAlias

from stator.loop import tables

NO_AXES: frozenset[Axis] = frozenset()


class Loaded(Protocol):
    """What the algebra needs of the integer expression behind an `Indirect`."""

    @property
    def digest(self) -> int: ...

    @property
    def axes(self) -> frozenset[Axis]: ...

    def substitute(self, mapping: Mapping[Axis, Index]) -> Any: ...


class Axis:
    """A loop variable that runs over 0 … size-1. Interned by name and size."""

    __slots__ = ("index", "name", "order", "size")
    name: str
    size: int
    order: tuple[int, str]
    index: Index

    def __new__(cls, name: str, size: int) -> Axis:
        found = _AXES.get((name, size))
        if found is not None:
            return found
        self = object.__new__(cls)
        self.name, self.size, self.order = name, size, (0, name)
        self.index = _intern(0, ((self, 1),) if size > 1 else ())
        return _AXES.setdefault((name, size), self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Axis, (self.name, self.size)

    def __repr__(self) -> str:
        return self.name


class FloorDiv:
    """`inner // divisor`, where nothing simpler is known. Made by `Index.__floordiv__` only."""

    __slots__ = ("divisor", "inner", "order")

    def __init__(self, inner: Index, divisor: int) -> None:
        self.inner, self.divisor = inner, divisor
        self.order = (1, repr(self))

    def __repr__(self) -> str:
        return f"{_wrapped(self.inner)}//{self.divisor}"


class Mod:
    """`inner % divisor`, where nothing simpler is known. Made by `Index.__mod__` only."""

    __slots__ = ("divisor", "inner", "order")

    def __init__(self, inner: Index, divisor: int) -> None:
        self.inner, self.divisor = inner, divisor
        self.order = (2, repr(self))

    def __repr__(self) -> str:
        return f"{_wrapped(self.inner)}%{self.divisor}"


class Indirect:
    """The value of an integer expression, checked to lie in 0 … bound-1. Made by `indirect` only."""

    __slots__ = ("bound", "expr", "order")

    def __init__(self, expr: Loaded, bound: int) -> None:
        self.expr, self.bound = expr, bound
        self.order = (3, f"{expr.digest:x}:{bound}")

    def __repr__(self) -> str:
        return f"[{self.expr.digest & 0xFFFFFF:06x}]"


Atom: TypeAlias = Axis | FloorDiv | Mod | Indirect
Terms: TypeAlias = tuple[tuple[Atom, int], ...]
Indexable: TypeAlias = "Index | Axis | int"

_AXES: dict[tuple[str, int], Axis] = tables.table()
_INDICES: dict[tuple[int, Terms], Index] = tables.table()
_ATOMS: dict[tuple[type, Any, int], Any] = tables.table()
_DIVIDED: dict[tuple[Index, int], Index] = tables.table()
_REMAINDERS: dict[tuple[Index, int], Index] = tables.table()


class Index:
    """An integer expression in normal form. Build it from axes and ints with `+ - * // %`."""

    __slots__ = ("_axes", "_text", "const", "has_indirect", "high", "low", "terms")
    const: int
    terms: Terms
    low: int
    high: int
    has_indirect: bool
    _axes: frozenset[Axis] | None
    _text: str | None

    @staticmethod
    def of(value: Indexable) -> Index:
        """The index of an axis or an int."""
        if type(value) is Index:
            return value
        if type(value) is Axis:
            return value.index
        return _intern(int(value), ())  # type: ignore[arg-type]

    # -- arithmetic --------------------------------------------------------------------------------

    def __add__(self, other: Indexable) -> Index:
        right = Index.of(other)
        if not right.terms:
            return self if right.const == 0 else _intern(self.const + right.const, self.terms)
        if not self.terms:
            return right if self.const == 0 else _intern(self.const + right.const, right.terms)
        total = dict(self.terms)
        for atom, coefficient in right.terms:
            total[atom] = total.get(atom, 0) + coefficient
        return _normal(self.const + right.const, total)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        if factor > 0:
            return _intern(self.const * factor, tuple([(a, c * factor) for a, c in self.terms]))
        return _normal(self.const * factor, {a: c * factor for a, c in self.terms})

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Indexable) -> Index:
        return self + Index.of(other) * -1

    def __rsub__(self, other: Indexable) -> Index:
        return Index.of(other) + self * -1

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        found = _DIVIDED.get((self, divisor))
        if found is None:
            found = _DIVIDED[self, divisor] = _divide(self, divisor)
        return found

    def __mod__(self, divisor: int) -> Index:
        if self.low >= 0 and self.high < divisor:
            return self
        found = _REMAINDERS.get((self, divisor))
        if found is None:
            found = _REMAINDERS[self, divisor] = _remainder(self, divisor)
        return found

    # -- questions ---------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        """The lowest and highest value it may take, both inclusive."""
        return self.low, self.high

    def coefficient(self, axis: Axis) -> int:
        """The coefficient of the axis as a term of its own (0 if it has none)."""
        for atom, coefficient in self.terms:
            if atom is axis:
                return coefficient
        return 0

    def stride(self, axis: Axis) -> int | None:
        """By how much a step of the axis moves the index, or None where that is not constant."""
        found = 0
        for atom, coefficient in self.terms:
            if atom is axis:
                found = coefficient
            elif type(atom) is not Axis and axis in _atom_axes(atom):
                return None
        return found

    def divisible_by(self, divisor: int) -> bool:
        """Whether every value is known to be a multiple of `divisor`."""
        if self.const % divisor:
            return False
        for atom, coefficient in self.terms:
            if coefficient % divisor == 0:
                continue
            rest = divisor // gcd(divisor, coefficient)
            if type(atom) is not Mod or atom.divisor % rest or not atom.inner.divisible_by(rest):
                return False
        return True

    def axes(self) -> frozenset[Axis]:
        """Every axis it depends on, also through `//`, `%` and loaded integers."""
        if self._axes is None:
            self._axes = NO_AXES.union(*[_atom_axes(atom) for atom, _ in self.terms])
        return self._axes

    def is_linear(self) -> bool:
        """Whether every atom is an axis."""
        return all(type(atom) is Axis for atom, _ in self.terms)

    def indirects(self) -> list[Indirect]:
        """The loaded integers it depends on, outermost first."""
        if not self.has_indirect:
            return []
        found: list[Indirect] = []
        for atom, _ in self.terms:
            if type(atom) is Indirect:
                found.append(atom)
            elif type(atom) is not Axis:
                found.extend(atom.inner.indirects())  # type: ignore[union-attr]
        return found

    # -- rewriting ---------------------------------------------------------------------------------

    def substitute(self, mapping: Mapping[Axis, Index], loaded: Callable[[Any], Any] | None = None) -> Index:
        """Replace axes by indices; `loaded` rewrites the expressions of indirects (default: substitute in them)."""
        if not self.has_indirect and mapping.keys().isdisjoint(self.axes()):
            return self
        const = self.const
        total: dict[Atom, int] = {}
        for atom, coefficient in self.terms:
            if type(atom) is Axis:
                part = mapping.get(atom)
                if part is None:
                    total[atom] = total.get(atom, 0) + coefficient
                    continue
            else:
                part = _substituted(atom, mapping, loaded)
            const += part.const * coefficient
            for inner, factor in part.terms:
                total[inner] = total.get(inner, 0) + factor * coefficient
        return _normal(const, total)

    def evaluate(self, values: Mapping[Axis, int], loaded: Callable[[Any], int] | None = None) -> int:
        """Its value for given axis values; `loaded` evaluates the expressions of indirects."""
        result = self.const
        for atom, coefficient in self.terms:
            if type(atom) is Axis:
                value = values[atom]
            elif type(atom) is FloorDiv:
                value = atom.inner.evaluate(values, loaded) // atom.divisor
            elif type(atom) is Mod:
                value = atom.inner.evaluate(values, loaded) % atom.divisor
            else:
                assert loaded is not None, "an indirect index needs a way to evaluate its expression"
                value = loaded(atom.expr)  # type: ignore[union-attr]
                if not 0 <= value < atom.bound:  # type: ignore[union-attr]
                    raise IndexError(f"index {value} is out of range for a dim of size {atom.bound}")  # type: ignore[union-attr]
            result += coefficient * value
        return result

    def render(self, name: Callable[[Any], str]) -> str:
        """Its text, where `name` names the expressions of indirects."""
        parts: list[str] = []
        for atom, coefficient in self.terms:
            text = _render_atom(atom, name)
            if abs(coefficient) != 1:
                text = f"{abs(coefficient)}*" + (text if type(atom) in (Axis, Indirect) else f"({text})")
            parts.append((" - " if coefficient < 0 else " + ") + text)
        if self.const or not parts:
            parts.append(f" {'-' if self.const < 0 else '+'} {abs(self.const)}")
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __repr__(self) -> str:
        if self._text is None:
            self._text = self.render(lambda expr: f"[{expr.digest & 0xFFFFFF:06x}]")
        return self._text


# -- construction ----------------------------------------------------------------------------------


def _intern(const: int, terms: Terms) -> Index:
    key = (const, terms)
    found = _INDICES.get(key)
    if found is not None:
        return found
    self = object.__new__(Index)
    low = high = const
    indirect = False
    for atom, coefficient in terms:
        bottom, top = _atom_bounds(atom)
        if coefficient > 0:
            low += coefficient * bottom
            high += coefficient * top
        else:
            low += coefficient * top
            high += coefficient * bottom
        kind = type(atom)
        indirect = indirect or kind is Indirect or (kind is not Axis and atom.inner.has_indirect)  # type: ignore[union-attr]
    self.const, self.terms, self.low, self.high = const, terms, low, high
    self.has_indirect, self._axes, self._text = indirect, None, None
    return _INDICES.setdefault(key, self)


def _normal(const: int, total: dict[Atom, int]) -> Index:
    """Intern after dropping zeros, joining `//` with `%`, and sorting."""
    if any(type(atom) is Mod for atom in total):
        joined = _join_parts(const, total)
        if joined is not None:
            return joined
    terms = [(atom, coefficient) for atom, coefficient in total.items() if coefficient]
    if len(terms) > 1:
        terms.sort(key=lambda term: (-abs(term[1]), term[0].order))
    return _intern(const, tuple(terms))


def _join_parts(const: int, total: dict[Atom, int]) -> Index | None:
    """`c*(x%n) + c*n*(x//n)` --> `c*x`, and `c*(x%n) + c*n*((x//n)%k)` --> `c*(x%(n*k))`."""
    for atom, coefficient in total.items():
        if type(atom) is not Mod or not coefficient:
            continue
        quotient, scaled = atom.inner // atom.divisor, coefficient * atom.divisor
        for other, factor in total.items():
            if factor != scaled:
                continue
            if quotient.const == 0 and quotient.terms == ((other, 1),):
                whole = atom.inner
            elif type(other) is Mod and other.inner is quotient:
                whole = atom.inner % (atom.divisor * other.divisor)
            else:
                continue
            rest = {a: c for a, c in total.items() if a is not atom and a is not other}
            return _normal(const, rest) + whole * coefficient
    return None


def _atom(kind: type, inner: Any, number: int) -> Any:
    key = (kind, inner, number)
    found = _ATOMS.get(key)
    return found if found is not None else _ATOMS.setdefault(key, kind(inner, number))


def indirect(expr: Loaded, bound: int) -> Index:
    """The index that an integer expression loads; values outside of 0 … bound-1 are errors at run time."""
    return _intern(0, ((_atom(Indirect, expr, bound), 1),))


ZERO = _intern(0, ())
tables.keep(_INDICES, (0, ()))


# -- division --------------------------------------------------------------------------------------


def _divide(self: Index, n: int) -> Index:
    """Floor division; each step is an identity of the integers, tried from the cheapest."""
    if n <= 0:
        raise ValueError(f"index division needs a positive divisor, not {n}")
    if self.low // n == self.high // n:
        return Index.of(self.low // n)
    if not 0 <= self.const < n or any(c % n == 0 or abs(c) > n for _, c in self.terms):
        parts = [(a, c % n if c % n == 0 or abs(c) > n else c) for a, c in self.terms]  # as in `_remainder`
        whole = {a: (c - rest) // n for (a, c), (_, rest) in zip(self.terms, parts, strict=True)}
        return _normal(self.const // n, dict(whole)) + _normal(self.const % n, dict(parts)) // n
    if (split := _split(self, n)) is not None:  # self = g*high + low, 0 <= low < g, g | n
        g, high, _ = split
        return high // (n // g)
    if len(self.terms) == 1 and self.terms[0][1] == 1:
        atom = self.terms[0][0]
        if type(atom) is FloorDiv:  # (x//a + c)//n --> (x + a*c)//(a*n)
            return (atom.inner + atom.divisor * self.const) // (atom.divisor * n)
        if type(atom) is Mod and self.const == 0 and atom.divisor % n == 0:  # (x%m)//n --> (x//n)%(m/n)
            return (atom.inner // n) % (atom.divisor // n)
    return _intern(0, ((_atom(FloorDiv, self, n), 1),))


def _remainder(self: Index, n: int) -> Index:
    if n <= 0:
        raise ValueError(f"index remainder needs a positive divisor, not {n}")
    if n == 1:
        return ZERO
    if self.low // n == self.high // n:
        return self - self.low // n * n
    if not 0 <= self.const < n or any(abs(c) >= n for _, c in self.terms):
        terms = {a: (c % n if abs(c) >= n else c) for a, c in self.terms}
        return _normal(self.const % n, terms) % n
    for atom, coefficient in self.terms:
        if type(atom) is Mod and coefficient * atom.divisor % n == 0:  # the inner remainder changes nothing
            return (self + (atom.inner - _intern(0, ((atom, 1),))) * coefficient) % n
    if (split := _split(self, n)) is not None:
        g, high, low = split
        return (high % (n // g)) * g + low
    return _intern(0, ((_atom(Mod, self, n), 1),))


def _split(self: Index, n: int) -> tuple[int, Index, Index] | None:
    """`self = g*high + low` with `0 <= low < g`, g a divisor of n and 1 < g; None if there is no such g."""
    terms = self.terms
    g = n
    divisors: list[int] = []
    for _, coefficient in terms:  # large coefficients first
        g = gcd(g, coefficient)
        if g == 1:
            break
        divisors.append(g)
    for count in range(len(divisors), 0, -1):
        g = divisors[count - 1]
        low = _intern(self.const % g, terms[count:])
        if low.low >= 0 and low.high < g:
            return g, _normal(self.const // g, {a: c // g for a, c in terms[:count]}), low
    return None


# -- atoms -----------------------------------------------------------------------------------------


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if type(atom) is Axis:
        return 0, atom.size - 1
    if type(atom) is FloorDiv:
        return atom.inner.low // atom.divisor, atom.inner.high // atom.divisor
    if type(atom) is Mod:
        return 0, min(atom.divisor - 1, atom.inner.high) if atom.inner.low >= 0 else atom.divisor - 1
    return 0, atom.bound - 1  # type: ignore[union-attr]


def _atom_axes(atom: Atom) -> frozenset[Axis]:
    if type(atom) is Axis:
        return frozenset((atom,))
    if type(atom) is Indirect:
        return atom.expr.axes
    return atom.inner.axes()  # type: ignore[union-attr]


def _substituted(atom: Atom, mapping: Mapping[Axis, Index], loaded: Callable[[Any], Any] | None) -> Index:
    if type(atom) is FloorDiv:
        return atom.inner.substitute(mapping, loaded) // atom.divisor
    if type(atom) is Mod:
        return atom.inner.substitute(mapping, loaded) % atom.divisor
    assert type(atom) is Indirect
    expr = loaded(atom.expr) if loaded is not None else atom.expr.substitute(mapping)
    return indirect(expr, atom.bound)


def _render_atom(atom: Atom, name: Callable[[Any], str]) -> str:
    if type(atom) is Axis:
        return atom.name
    if type(atom) is Indirect:
        return name(atom.expr)
    text = atom.inner.render(name)  # type: ignore[union-attr]
    wrapped = f"({text})" if " " in text or "/" in text or "%" in text or "*" in text else text
    return f"{wrapped}{'//' if type(atom) is FloorDiv else '%'}{atom.divisor}"  # type: ignore[union-attr]


def _wrapped(inner: Index) -> str:
    text = repr(inner)
    return text if text.isidentifier() else f"({text})"
