"""Linear algebra over bits: vectors are ints, sums of them are exclusive ors.

A matrix is the list of its columns: what each bit of the input adds to the output. Neighbours: `linear` has layouts,
whose bases are such columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def apply(columns: Sequence[int], number: int) -> int:
    """What a matrix makes of a vector."""
    found = 0
    for bit, column in enumerate(columns):
        if number >> bit & 1:
            found ^= column
    return found


class Span:
    """The sums of some vectors, in echelon form; it remembers of which vectors each is a sum."""

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self.size = 0  # how many vectors there were
        self._rows: dict[int, tuple[int, int]] = {}  # the highest bit → a vector that has it, and what it is a sum of
        for vector in vectors:
            self.add(vector)

    @property
    def rank(self) -> int:
        return len(self._rows)

    def add(self, vector: int) -> bool:
        """One vector more; whether it was no sum of those before it."""
        rest, parts = self._reduced(vector)
        parts |= 1 << self.size
        self.size += 1
        if rest:
            self._rows[rest.bit_length()] = rest, parts
        return bool(rest)

    def express(self, vector: int) -> int | None:
        """A mask of the vectors whose sum is this one, or None where it is none."""
        rest, parts = self._reduced(vector)
        return None if rest else parts

    def __contains__(self, vector: int) -> bool:
        return not self._reduced(vector)[0]

    def _reduced(self, vector: int) -> tuple[int, int]:
        parts = 0
        while vector and vector.bit_length() in self._rows:
            row, of = self._rows[vector.bit_length()]
            vector, parts = vector ^ row, parts ^ of
        return vector, parts


def rank(vectors: Iterable[int]) -> int:
    """How many of some vectors are no sums of the others."""
    rows: dict[int, int] = {}
    for vector in vectors:
        while vector:
            row = rows.setdefault(vector.bit_length(), vector)
            if row is vector:
                break
            vector ^= row
    return len(rows)


def independent(vectors: Iterable[int], known: Iterable[int] = ()) -> list[int]:
    """Those of some vectors that are no sums of known ones and of those before them."""
    span = Span(known)
    return [vector for vector in vectors if span.add(vector)]


def intersection(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """A basis of what are sums of both."""
    left, right = independent(left), independent(right)
    span = Span(left)
    found = []
    for vector in right:
        parts = span.express(vector)
        if parts is not None:
            found.append(apply(left, parts & ((1 << len(left)) - 1)))
        span.add(vector)
    return independent(found)


def inverse(columns: Sequence[int]) -> list[int]:
    """The columns of the inverse of a square matrix; ValueError where it has none."""
    span = Span(columns)
    if span.rank != len(columns):
        raise ValueError("the columns are not independent")
    found = []
    for bit in range(len(columns)):
        parts = span.express(1 << bit)
        if parts is None:
            raise ValueError("the matrix is not square")
        found.append(parts)
    return found
