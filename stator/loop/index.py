"""Index algebra: integer expressions of loop axes in a normal form, interned.

An `Index` is `const + Σ coefficient · atom`; an atom is an `Axis`, a `FloorDiv`, a `Mod` or an `Indirect` (an integer
that is loaded at run time). Equality is identity. `//` and `%` take a positive extent and round towards minus infinity.
Constants, coefficients, divisors and sizes of axes are extents: ints, or symbolic `Size`s; `fixed` has ints only.
Invariant: two terms never share an atom, no coefficient is 0, terms are in a deterministic order (large coefficients
first), and `bounds()` encloses every value for axes within their sizes (None where no bound is known).
Neighbours: `expr` (an `Indirect` holds an `Expr`, and `Expr`s hold indices); nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, TypeAlias

from stator.loop import tables
from stator.loop.extent import Bound, less, quotient, signed, weight, wrapped
from stator.loop.loaded import Loaded
from stator.sizes import Extent, Size

NO_AXES: frozenset[Axis] = frozenset()


class Axis:
    """A loop variable that runs over 0 … size-1. Interned by name and size."""

    __slots__ = ("index", "name", "order", "size")
    name: str
    size: Extent
    order: tuple[int, str]
    index: Index

    def __new__(cls, name: str, size: Extent) -> Axis:
        found = _AXES.get((name, size))
        if found is not None:
            return found
        self = object.__new__(cls)
        self.name, self.size, self.order = name, size, (0, name)
        self.index = _intern(0, ((self, 1),) if type(size) is not int or size > 1 else ())
        return _AXES.setdefault((name, size), self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Axis, (self.name, self.size)

    def __repr__(self) -> str:
        return self.name


class FloorDiv:
    """`inner // divisor`, where nothing simpler is known. Made by `Index.__floordiv__` only."""

    __slots__ = ("divisor", "inner", "order")

    def __init__(self, inner: Index, divisor: Extent) -> None:
        self.inner, self.divisor = inner, divisor
        self.order = (1, repr(self))

    def __repr__(self) -> str:
        return f"{_wrapped(self.inner)}//{wrapped(self.divisor)}"


class Mod:
    """`inner % divisor`, where nothing simpler is known. Made by `Index.__mod__` only."""

    __slots__ = ("divisor", "inner", "order")

    def __init__(self, inner: Index, divisor: Extent) -> None:
        self.inner, self.divisor = inner, divisor
        self.order = (2, repr(self))

    def __repr__(self) -> str:
        return f"{_wrapped(self.inner)}%{wrapped(self.divisor)}"


class Indirect:
    """The value of an integer expression, checked to lie in 0 … bound-1. Made by `indirect` only."""

    __slots__ = ("bound", "expr", "order")

    def __init__(self, expr: Loaded, bound: Extent) -> None:
        self.expr, self.bound = expr, bound
        self.order = (3, f"{expr.digest:x}:{bound}")

    def __repr__(self) -> str:
        return f"[{self.expr.digest & 0xFFFFFF:06x}]"


Atom: TypeAlias = Axis | FloorDiv | Mod | Indirect
Terms: TypeAlias = tuple[tuple[Atom, Extent], ...]
Indexable: TypeAlias = "Index | Axis | Extent"

_AXES: dict[tuple[str, Extent], Axis] = tables.table()
_INDICES: dict[tuple[Extent, Terms], Index] = tables.table()
_ATOMS: dict[tuple[type, Any, Extent], Any] = tables.table()
_DIVIDED: dict[tuple[Index, Extent], Index] = tables.table()
_REMAINDERS: dict[tuple[Index, Extent], Index] = tables.table()
#: By an index and what stands for each of its axes, in their order: fusion asks the same of few, again and again.
_SUBSTITUTED: dict[tuple[Index | None, ...], Index] = tables.table()


class Index:
    """An integer expression in normal form. Build it from axes and extents with `+ - * // %`."""

    __slots__ = ("_axes", "_text", "const", "fixed", "has_indirect", "high", "low", "terms")
    const: Extent
    terms: Terms
    low: Any  # Bound; an int where the index is `fixed`
    high: Any
    fixed: bool
    has_indirect: bool
    _axes: frozenset[Axis] | None
    _text: str | None

    @staticmethod
    def of(value: Indexable) -> Index:
        """The index of an axis or an extent."""
        if type(value) is Index:
            return value
        if type(value) is Axis:
            return value.index
        return _intern(value if type(value) is Size else int(value), ())  # type: ignore[arg-type]

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

    def __mul__(self, factor: Extent) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        if self.fixed and type(factor) is int and factor > 0:
            return _intern(self.const * factor, tuple([(a, c * factor) for a, c in self.terms]))
        return _normal(self.const * factor, {a: c * factor for a, c in self.terms})

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Indexable) -> Index:
        return self + Index.of(other) * -1

    def __rsub__(self, other: Indexable) -> Index:
        return Index.of(other) + self * -1

    def __floordiv__(self, divisor: Extent) -> Index:
        if divisor == 1:
            return self
        found = _DIVIDED.get((self, divisor))
        if found is None:
            divide = _divide if self.fixed and type(divisor) is int else _divide_open
            found = _DIVIDED[self, divisor] = divide(self, divisor)  # type: ignore[arg-type]
        return found

    def __mod__(self, divisor: Extent) -> Index:
        if self.within(divisor):
            return self
        found = _REMAINDERS.get((self, divisor))
        if found is None:
            remainder = _remainder if self.fixed and type(divisor) is int else _remainder_open
            found = _REMAINDERS[self, divisor] = remainder(self, divisor)  # type: ignore[arg-type]
        return found

    # -- questions ---------------------------------------------------------------------------------

    def bounds(self) -> tuple[Bound, Bound]:
        """The lowest and highest value it may take, both inclusive; None where that is not known."""
        return self.low, self.high

    def within(self, extent: Extent) -> bool:
        """Whether every value is known to lie in 0 … extent-1."""
        if self.fixed and type(extent) is int:
            return bool(self.low >= 0 and self.high < extent)
        return less(-1, self.low) and less(self.high, extent)

    @property
    def nonnegative(self) -> bool:
        """Whether no value is negative, as far as is known."""
        return less(-1, self.low)

    def coefficient(self, axis: Axis) -> Extent:
        """The coefficient of the axis as a term of its own (0 if it has none)."""
        for atom, coefficient in self.terms:
            if atom is axis:
                return coefficient
        return 0

    def stride(self, axis: Axis) -> Extent | None:
        """By how much a step of the axis moves the index, or None where that is not constant."""
        found: Extent = 0
        for atom, coefficient in self.terms:
            if atom is axis:
                found = coefficient
            elif type(atom) is not Axis and axis in _atom_axes(atom):
                return None
        return found

    def divisible_by(self, divisor: int) -> bool:
        """Whether every value is known to be a multiple of `divisor`."""
        if self.const % divisor != 0:
            return False
        for atom, coefficient in self.terms:
            if coefficient % divisor == 0:
                continue
            rest = divisor // gcd(divisor, coefficient) if type(coefficient) is int else divisor
            if type(atom) is not Mod or atom.divisor % rest != 0 or not atom.inner.divisible_by(rest):
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
        axes = self.axes()
        if not self.has_indirect and mapping.keys().isdisjoint(axes):
            return self
        key = (self, *map(mapping.get, axes)) if not self.has_indirect else ()
        if (found := _SUBSTITUTED.get(key)) is not None:
            return found
        const = self.const
        total: dict[Atom, Extent] = {}
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
        result = _normal(const, total)
        if key:
            _SUBSTITUTED[key] = result
        return result

    def resized(self, sizes: Callable[[Extent], Extent], loaded: Callable[[Any], Any]) -> Index:
        """Replace extents by `sizes`, those of axes too, and the expressions of indirects by `loaded`."""
        result = Index.of(sizes(self.const))
        for atom, coefficient in self.terms:
            if type(atom) is Axis:
                part = Axis(atom.name, sizes(atom.size)).index
            elif type(atom) is Indirect:
                part = indirect(loaded(atom.expr), sizes(atom.bound))
            else:
                inner = atom.inner.resized(sizes, loaded)  # type: ignore[union-attr]
                divisor = sizes(atom.divisor)  # type: ignore[union-attr]
                part = inner // divisor if type(atom) is FloorDiv else inner % divisor
            result = result + part * sizes(coefficient)
        return result

    def evaluate(self, values: Mapping[Axis, int], loaded: Callable[[Any], int] | None = None) -> int:
        """Its value for given axis values; `loaded` evaluates the expressions of indirects. It must be fixed."""
        result: Any = self.const
        for atom, coefficient in self.terms:
            if type(atom) is Axis:
                value: Any = values[atom]
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
        return int(result)

    def render(self, name: Callable[[Any], str]) -> str:
        """Its text, where `name` names the expressions of indirects."""
        parts: list[str] = []
        for atom, coefficient in self.terms:
            text = _render_atom(atom, name)
            negative, factor = signed(coefficient)
            bare = type(atom) in (Axis, Indirect) or (factor == "1" and (parts or not negative))  # -x//2 is (-x)//2
            text = text if bare else f"({text})"
            text = text if factor == "1" else f"{factor}*{text}"
            parts.append((" - " if negative else " + ") + text)
        if self.const != 0 or not parts:
            negative, text = signed(self.const)
            parts.append(f" {'-' if negative else '+'} {text}")
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __repr__(self) -> str:
        if self._text is None:
            self._text = self.render(lambda expr: f"[{expr.digest & 0xFFFFFF:06x}]")
        return self._text


# -- construction ----------------------------------------------------------------------------------


def _intern(const: Extent, terms: Terms) -> Index:
    key = (const, terms)
    found = _INDICES.get(key)
    if found is not None:
        return found
    self = object.__new__(Index)
    low: Any = const
    high: Any = const
    indirect, fixed = False, type(const) is int
    for atom, coefficient in terms:
        bottom, top = _atom_bounds(atom)
        if type(coefficient) is int and type(bottom) is int and type(top) is int and fixed:
            if coefficient > 0:
                low += coefficient * bottom
                high += coefficient * top
            else:
                low += coefficient * top
                high += coefficient * bottom
        else:
            fixed = False
        kind = type(atom)
        indirect = indirect or kind is Indirect or (kind is not Axis and atom.inner.has_indirect)  # type: ignore[union-attr]
    if not fixed and terms:
        low, high = _enclosed(const, terms)
    self.const, self.terms, self.low, self.high, self.fixed = const, terms, low, high, fixed
    self.has_indirect, self._axes, self._text = indirect, None, None
    return _INDICES.setdefault(key, self)


def _enclosed(const: Extent, terms: Terms) -> tuple[Bound, Bound]:
    """Bounds where a size is symbolic."""
    low: Bound = const
    high: Bound = const
    for atom, coefficient in terms:
        bottom, top = _atom_bounds(atom)
        if less(coefficient, 0):
            bottom, top = top, bottom
        elif not less(-1, coefficient):
            return None, None
        low = None if low is None or bottom is None else low + coefficient * bottom
        high = None if high is None or top is None else high + coefficient * top
    return low, high


def _normal(const: Extent, total: dict[Atom, Extent]) -> Index:
    """Intern after dropping zeros, joining `//` with `%`, and sorting."""
    if any(type(atom) is Mod for atom in total):
        joined = _join_parts(const, total)
        if joined is not None:
            return joined
    terms = [(atom, coefficient) for atom, coefficient in total.items() if coefficient != 0]
    if len(terms) > 1:
        try:
            terms.sort(key=lambda term: (-abs(term[1]), term[0].order))  # type: ignore[arg-type]
        except TypeError:  # a symbolic coefficient has no absolute value
            terms.sort(key=lambda term: (weight(term[1]), term[0].order))
    return _intern(const, tuple(terms))


def _join_parts(const: Extent, total: dict[Atom, Extent]) -> Index | None:
    """`c*(x%n) + c*n*(x//n)` --> `c*x`, and `c*(x%n) + c*n*((x//n)%k)` --> `c*(x%(n*k))`."""
    for atom, coefficient in total.items():
        if type(atom) is not Mod or coefficient == 0:
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


def _atom(kind: type, inner: Any, number: Extent) -> Any:
    key = (kind, inner, number)
    found = _ATOMS.get(key)
    return found if found is not None else _ATOMS.setdefault(key, kind(inner, number))


def indirect(expr: Loaded, bound: Extent) -> Index:
    """The index that an integer expression loads; values outside of 0 … bound-1 are errors at run time."""
    if (constant := expr.constant) is not None and constant >= 0 and less(constant, bound):
        return Index.of(constant)
    return _intern(0, ((_atom(Indirect, expr, bound), 1),))


ZERO = _intern(0, ())
tables.keep(_INDICES, (0, ()))


# -- division --------------------------------------------------------------------------------------


def _divide(self: Index, n: int) -> Index:
    """Floor division; each step is an identity of the integers, tried from the cheapest."""
    terms: Any = self.terms  # of a fixed index: all coefficients are ints
    if n <= 0:
        raise ValueError(f"index division needs a positive divisor, not {n}")
    if self.low // n == self.high // n:
        return Index.of(self.low // n)
    if not 0 <= self.const < n or any(c % n == 0 or abs(c) > n for _, c in terms):
        parts = [(a, c % n if c % n == 0 or abs(c) > n else c) for a, c in terms]  # as in `_remainder`
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
    coefficients: Any = self.terms  # of a fixed index: all are ints
    if self.low // n == self.high // n:
        return self - self.low // n * n
    if not 0 <= self.const < n or any(abs(c) >= n for _, c in coefficients):
        terms = {a: (c % n if abs(c) >= n else c) for a, c in coefficients}
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


def _divide_open(self: Index, n: Extent) -> Index:
    """Floor division where a size is symbolic: the same identities, as far as they can be proved."""
    if self.within(n):
        return ZERO
    whole, rest = _multiples(self, n)
    if whole is not ZERO:
        return whole + rest // n
    if (split := _split_open(self, n)) is not None:
        g, high, _ = split
        return high // (n // g)
    if len(self.terms) == 1 and self.terms[0][1] == 1:
        atom = self.terms[0][0]
        if type(atom) is FloorDiv:
            return (atom.inner + atom.divisor * self.const) // (atom.divisor * n)
        if type(atom) is Mod and self.const == 0 and atom.divisor % n == 0:
            return (atom.inner // n) % (atom.divisor // n)
    return _intern(0, ((_atom(FloorDiv, self, n), 1),))


def _remainder_open(self: Index, n: Extent) -> Index:
    if n == 1:
        return ZERO
    whole, rest = _multiples(self, n)
    if whole is not ZERO:
        return rest % n
    for atom, coefficient in self.terms:
        if type(atom) is Mod and coefficient * atom.divisor % n == 0:
            return (self + (atom.inner - _intern(0, ((atom, 1),))) * coefficient) % n
    if (split := _split_open(self, n)) is not None:
        g, high, low = split
        return (high % (n // g)) * g + low
    return _intern(0, ((_atom(Mod, self, n), 1),))


def _multiples(self: Index, n: Extent) -> tuple[Index, Index]:
    """(whole, rest) with `self = n*whole + rest`, as much of it whole as can be seen."""
    whole: dict[Atom, Extent] = {}
    rest: dict[Atom, Extent] = {}
    for atom, coefficient in self.terms:
        whole[atom] = quotient(coefficient, n)
        rest[atom] = coefficient - whole[atom] * n
    const = quotient(self.const, n)
    return _normal(const, whole), _normal(self.const - const * n, rest)


def _split_open(self: Index, n: Extent) -> tuple[Extent, Index, Index] | None:
    """As `_split`; the divisors that are tried are the coefficients themselves."""
    for _, coefficient in self.terms:
        g = gcd(coefficient, n) if type(coefficient) is int and type(n) is int else coefficient
        if g in (1, -1) or g is n or n % g != 0:
            continue
        high, low = _multiples(self, g)
        if low.within(g):
            return g, high, low
    return None


# -- atoms -----------------------------------------------------------------------------------------


def _atom_bounds(atom: Atom) -> tuple[Bound, Bound]:
    if type(atom) is Axis:
        return 0, atom.size - 1
    if type(atom) is Indirect:
        return 0, atom.bound - 1
    inner, divisor = atom.inner, atom.divisor  # type: ignore[union-attr]
    fixed = inner.fixed and type(divisor) is int
    if type(atom) is FloorDiv:
        low, high = inner.low, inner.high
        return None if low is None else low // divisor, None if high is None else high // divisor
    return 0, min(divisor - 1, inner.high) if fixed and inner.low >= 0 else divisor - 1


def _atom_axes(atom: Atom) -> frozenset[Axis]:
    if type(atom) is Axis:
        return frozenset((atom,))
    return atom.expr.axes if type(atom) is Indirect else atom.inner.axes()  # type: ignore[union-attr]


def _substituted(atom: Atom, mapping: Mapping[Axis, Index], loaded: Callable[[Any], Any] | None) -> Index:
    if type(atom) is FloorDiv:
        return atom.inner.substitute(mapping, loaded) // atom.divisor
    if type(atom) is Mod:
        return atom.inner.substitute(mapping, loaded) % atom.divisor
    assert type(atom) is Indirect
    return indirect(loaded(atom.expr) if loaded is not None else atom.expr.substitute(mapping), atom.bound)


def _render_atom(atom: Atom, name: Callable[[Any], str]) -> str:
    if type(atom) is Axis:
        return atom.name
    if type(atom) is Indirect:
        return name(atom.expr)
    text = atom.inner.render(name)  # type: ignore[union-attr]
    inside = f"({text})" if " " in text or "/" in text or "%" in text or "*" in text else text
    return f"{inside}{'//' if type(atom) is FloorDiv else '%'}{wrapped(atom.divisor)}"  # type: ignore[union-attr]


def _wrapped(inner: Index) -> str:
    text = repr(inner)
    return text if text.isidentifier() else f"({text})"
