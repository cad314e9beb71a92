"""How a weight of bfloat16 lies for instructions that multiply pairs of terms.

Such an instruction adds two products to each of sixteen columns, and one for tiles does so in sixteen rows at once.
Both read sixteen columns side by side, of each a pair of terms. So a weight lies by columns in sixteens, in these by
pairs of terms, in these by columns; zeros fill it up to whole tiles.
Neighbours: `passes/pairs.py` lays weights so, `kernel/pairs.py` finds the products, `codegen/cpp/pairs.h` reads them.
"""

from __future__ import annotations

from typing import Any

#: Columns that lie side by side, terms up to whose multiple they are filled up, and terms of a pair.
COLUMNS, TERMS, PAIR = 16, 32, 2


def filled(columns: int, terms: int) -> tuple[int, int]:
    """Columns and terms up to which zeros fill a weight."""
    return -(-columns // COLUMNS) * COLUMNS, -(-terms // TERMS) * TERMS


def shape(columns: int, terms: int) -> tuple[int, int, int, int]:
    """The size of it: columns in sixteens, pairs of terms, columns of one sixteen, terms of a pair."""
    columns, terms = filled(columns, terms)
    return columns // COLUMNS, terms // PAIR, COLUMNS, PAIR


def position(column: Any, term: Any) -> tuple[Any, Any, Any, Any]:
    """Where an element is, in each of these dims."""
    return column // COLUMNS, term // PAIR, column % COLUMNS, term % PAIR


def place(column: Any, term: Any, terms: int) -> Any:
    """Where it is in memory, of so many terms."""
    outer, pair, inner, half = position(column, term)
    return outer * block(terms) + pair * (COLUMNS * PAIR) + inner * PAIR + half


def block(terms: int) -> int:
    """Elements of sixteen columns."""
    return filled(0, terms)[1] * COLUMNS
