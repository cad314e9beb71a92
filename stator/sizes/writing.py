"""Size expressions walked from their leaves up: evaluated, written as text, as a program, as JSON.

All of it is `fold` with another meaning of leaves and operations. The structure is read without building sizes, so
`size.py`, which builds them, can stand above this file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from stator.sizes.size import Extent, Monomial, Size, Symbol

T = TypeVar("T")

#: What fits into the numbers that guards compute with.
LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1

#: What the operations of expressions do with ints.
ON_INTS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
}


def fold(x: Extent, leaf: Callable[[Symbol | int], T], apply: Callable[[str, T, T], T]) -> T:
    """Builds a result up from symbols and ints: `apply(op, left, right)` for + - * // % max min."""
    if isinstance(x, int):
        return leaf(x)
    positive = [term for term in x.terms if term[1] > 0]
    parts = [(c, _fold_term(monomial, abs(c), leaf, apply)) for monomial, c in positive]
    if x.const > 0:
        parts.append((x.const, leaf(x.const)))
    if not parts:
        parts.append((0, leaf(x.const)))
    parts += [(c, _fold_term(monomial, abs(c), leaf, apply)) for monomial, c in x.terms if c < 0]
    if x.const < 0 and positive:
        parts.append((x.const, leaf(-x.const)))
    result = parts[0][1]
    for coefficient, part in parts[1:]:
        result = apply("+" if coefficient > 0 else "-", result, part)
    return result


def _fold_term(
    monomial: Monomial, coefficient: int, leaf: Callable[[Symbol | int], T], apply: Callable[[str, T, T], T]
) -> T:
    factors = [] if coefficient == 1 else [leaf(coefficient)]
    for atom, power in monomial:
        if atom.op is None:
            value = leaf(atom)
        else:
            value = apply(atom.op, fold(atom.left, leaf, apply), fold(atom.right, leaf, apply))
        factors += [value] * power
    return reduce(lambda left, right: apply("*", left, right), factors)


def evaluate(x: Extent, values: Mapping[Symbol, int]) -> int:
    """The value of `x` for values of all its symbols."""
    return fold(
        x,
        lambda leaf: leaf if isinstance(leaf, int) else values[leaf],
        lambda op, left, right: ON_INTS[op](left, right),
    )


def hint(x: Extent) -> int:
    """The value of `x` in the call met first: for decisions that are about speed only."""
    if isinstance(x, int):
        return x
    if x._hint is None:
        x._hint = fold(
            x,
            lambda leaf: leaf if isinstance(leaf, int) else leaf.hint,
            lambda op, left, right: ON_INTS[op](left, right),
        )
    return x._hint


def fits(x: Extent) -> bool:
    """Whether computing `hint(x)` with 64 bits, as guards do, meets no number that does not fit."""

    def leaf(found: Symbol | int) -> tuple[int, bool]:
        value = found if isinstance(found, int) else found.hint
        return value, LEAST <= value <= MOST

    def apply(op: str, left: tuple[int, bool], right: tuple[int, bool]) -> tuple[int, bool]:
        value = ON_INTS[op](left[0], right[0])
        return value, left[1] and right[1] and LEAST <= value <= MOST

    return fold(x, leaf, apply)[1]


def operands(x: Extent) -> list[Size]:
    """What is divided, or compared by `max` and `min`, within `x`, and by what; innermost first."""
    found: list[Size] = []
    for monomial, _ in () if isinstance(x, int) else x.terms:
        for atom, _ in monomial:
            if atom.op is not None:
                for side in (atom.left, atom.right):
                    if not isinstance(side, int):
                        found += [*operands(side), side]
    return found


def symbols(x: Extent) -> frozenset[Symbol]:
    """Every symbol that `x` depends on."""
    if isinstance(x, int):
        return frozenset()
    if x._symbols is None:
        x._symbols = fold(
            x,
            lambda leaf: frozenset(() if isinstance(leaf, int) else (leaf,)),
            lambda op, left, right: left | right,
        )
    return x._symbols


# -- writing ---------------------------------------------------------------------------------------

#: How tightly an operation binds in a Python expression; 9 is an atom.
_BINDING: Final = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def python(x: Extent, names: Mapping[Symbol, str] | None = None) -> str:
    """A Python expression; `names` gives expressions for symbols, else they stand by name."""
    if isinstance(x, int):
        return str(x)
    if names is None:
        if x._text is None:
            x._text = _python(x, None)
        return x._text
    return _python(x, names)


def _python(x: Size, names: Mapping[Symbol, str] | None) -> str:
    def leaf(symbol: Symbol | int) -> tuple[int, str]:
        if isinstance(symbol, int):
            return 9 if symbol >= 0 else 0, str(symbol)
        return 9, symbol.name if names is None else names[symbol]

    def apply(op: str, left: tuple[int, str], right: tuple[int, str]) -> tuple[int, str]:
        strength = _BINDING.get(op)
        if strength is None:
            return 9, f"{op}({left[1]}, {right[1]})"
        first = left[1] if left[0] >= strength else f"({left[1]})"
        second = right[1] if right[0] > strength else f"({right[1]})"
        space = "" if op == "*" else " "
        return strength, f"{first}{space}{op}{space}{second}"

    return fold(x, leaf, apply)[1]


def postfix(x: Extent, operands: Mapping[Symbol, int] | None = None) -> tuple[tuple[Any, ...], ...]:
    """A program for a stack: `("const", n)`, `("operand", operands[symbol])` (or `("symbol", symbol)`), `("+",)` …"""

    def leaf(symbol: Symbol | int) -> tuple[tuple[Any, ...], ...]:
        if isinstance(symbol, int):
            return (("const", symbol),)
        return (("symbol", symbol),) if operands is None else (("operand", operands[symbol]),)

    return fold(x, leaf, lambda op, left, right: (*left, *right, (op,)))


def dump(x: Extent) -> Any:
    """As JSON: an int, `["symbol", name, low, high, hint]` or `[op, left, right]`."""

    def leaf(symbol: Symbol | int) -> Any:
        return symbol if isinstance(symbol, int) else ["symbol", symbol.name, symbol.low, symbol.high, symbol.hint]

    return fold(x, leaf, lambda op, left, right: [op, left, right])
