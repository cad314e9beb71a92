"""Sizes in terms of what their symbols are known to be, and back in terms of those that inputs tell.

Of a size that is a multiple of 32, `s0 // 16` says little to loops: neither that it is not 0, nor that `s0` is 16 times
as much. So these are lowered in terms of `s0//32`, a symbol of its own, by which both are products: `2*(s0//32)` and
`32*(s0//32)`. What runs is told `s0` alone, hence schedules are written in terms of that again.
Neighbours: `environment.py` knows what symbols are; `lowering/value.py` and `loop/schedule.py` go there and back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from stator.sizes.size import OPERATIONS, Atom, Extent, Size, Symbol


class Part(NamedTuple):
    """A symbol that is not told: `factor` times it is one that is."""

    of: Symbol
    factor: int


_PART: Final = re.compile(r"\((\w+)//(\d+)\)")
#: By symbols that nobody is told.
Derived: TypeAlias = Mapping[Symbol, Part]


def part_name(symbol: Symbol, factor: int) -> str:
    """What a part is called: `(s0//32)`, also where that is half of `(s0//16)`."""
    found = _PART.fullmatch(symbol.name)
    return f"({symbol.name}//{factor})" if found is None else f"({found[1]}//{int(found[2]) * factor})"


def derived(known: Mapping[Symbol, Extent], told: Collection[Symbol]) -> dict[Symbol, Part]:
    """The parts of symbols by what is known of these, also such as are known to be more themselves by now."""
    multiples = [(symbol, *multiple) for symbol, size in known.items() if (multiple := _multiple_of(size)) is not None]
    parts: dict[Symbol, Part] = {}
    for symbol, part, factor in multiples:
        if symbol in told and symbol is not part and (part not in parts or factor < parts[part].factor):
            parts[part] = Part(symbol, factor)
    for symbol, part, factor in multiples:
        if symbol not in told and part in parts and parts[part].factor % factor == 0:
            parts[symbol] = Part(parts[part].of, parts[part].factor // factor)
    return parts


def _multiple_of(size: Extent) -> tuple[Symbol, int] | None:
    """The symbol of which a size is a multiple, and how often it has it."""
    match size:
        case Size(const=0, terms=((((Symbol() as symbol, 1),), factor),)) if factor > 0:
            return symbol, factor
    return None


def in_told(size: Extent, parts: Derived) -> Extent:
    """The same number, of symbols that are told: `3*part`  -->  `3*(whole // factor)`, `factor*part`  -->  `whole`."""
    if not isinstance(size, Size) or parts.keys().isdisjoint(size.symbols):
        return size
    total: Extent = size.const
    for monomial, coefficient in size.terms:
        product: Extent = 1
        for atom, power in monomial:
            whole, factor = parts.get(atom, (None, 1)) if isinstance(atom, Symbol) else (None, 1)
            for _ in range(power):
                if whole is not None and coefficient % factor == 0:
                    coefficient, product = coefficient // factor, product * whole.size
                else:
                    product = product * _atom_in_told(atom, parts)
        total = total + product * coefficient
    return total


def _atom_in_told(atom: Atom, parts: Derived) -> Extent:
    if isinstance(atom, Symbol):
        whole = parts.get(atom)
        return atom.size if whole is None else whole.of.size // whole.factor
    result: Extent = OPERATIONS[atom.op](in_told(atom.left, parts), in_told(atom.right, parts))
    return result
