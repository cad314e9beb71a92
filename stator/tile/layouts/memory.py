"""Where elements lie in shared memory: a linear map from the bits of an offset to elements, with padding on demand.

An offset counts elements. Each one holds one element, and each element has one offset, so the map has an inverse.
Padding puts `pad` elements behind every `interval`: places are then offset + offset // interval * pad.

    64x64: offset 0.1 0.2 0.4 0.8 0.16 0.32 1.8 2.16 4.32 8.0 16.0 32.0

is row-major, with rows of eight vectors that are exchanged by the row's number: `swizzled((64, 64), 8, 1, 8)`.
Neighbours: `access` says how threads of a layout go to it; `conversion` makes the maps that conversions go through.
Other memories, as tensor memory, would be a class beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from stator.tile.layouts.bits import Span, apply, inverse
from stator.tile.layouts.linear import (
    Base,
    LayoutError,
    axis_bits,
    checked_shape,
    flat,
    read_bases,
    read_shape,
    shape_text,
    unflat,
)

#: Bytes of all banks, as many of which a row has at most, and of a vector; rows whose vectors are in other places.
_ROW_BYTES, _VECTOR_BYTES, _PHASES = 128, 16, 8


@dataclass(frozen=True)
class Shared:
    """The bases of an offset's bits; padding as (interval, pad), both in elements, or (0, 0). LayoutError if it is
    none."""

    shape: tuple[int, ...]
    offset: tuple[Base, ...]
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        checked_shape(self.shape)
        for base in self.offset:
            if len(base) != len(self.shape) or not all(0 <= c < n for c, n in zip(base, self.shape, strict=True)):
                raise LayoutError(f"{base} is no element of {self.shape}")
        if 1 << len(self.offset) != prod(self.shape) or Span(self.columns).rank != len(self.offset):
            raise LayoutError(f"{self} does not have a place for each element")
        interval, pad = self.padding
        if pad < 0 or interval < 0 or interval & (interval - 1) or bool(pad) != bool(interval):
            raise LayoutError(f"padding is a power of two and a number of elements, not {self.padding}")

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.offset, self.padding))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def columns(self) -> tuple[int, ...]:
        return tuple([flat(self.shape, base) for base in self.offset])

    @cached_property
    def places(self) -> tuple[int, ...]:
        """What each bit of a row-major number adds to the offset."""
        return tuple(inverse(self.columns))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements' room it takes."""
        return self.padded(prod(self.shape) - 1) + 1

    def padded(self, offset: int) -> int:
        """The place of an offset, in elements."""
        interval, pad = self.padding
        return offset + offset // interval * pad if interval else offset

    def coordinates(self, offset: int) -> Base:
        """The element at an offset."""
        return unflat(self.shape, apply(self.columns, offset))

    def offset_of(self, coordinates: Sequence[int]) -> int:
        """Where an element is, before padding."""
        return apply(self.places, flat(self.shape, coordinates))

    def transpose(self, order: Sequence[int]) -> Shared:
        """The same memory as a tile whose axis i is axis order[i]."""
        offset = tuple([tuple([base[axis] for axis in order]) for base in self.offset])
        return Shared(tuple([self.shape[axis] for axis in order]), offset, self.padding)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        bases = " ".join([".".join(map(str, base)) for base in self.offset])
        padding = f"; padding {self.padding[0]} {self.padding[1]}" if self.padding[0] else ""
        return f"{shape_text(self.shape)}: offset {bases}".rstrip() + padding


def row_major(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[Base, ...]:
    """The bases of elements one after the other, along the first axis of an order first; the last axis by default."""
    axes = list(reversed(range(len(shape)))) if order is None else order
    return tuple([base for axis in axes for base in axis_bits(shape, axis)])


def plain(shape: Sequence[int], order: Sequence[int] | None = None) -> Shared:
    """Elements one after the other."""
    return Shared(tuple(shape), row_major(shape, order))


def padded(shape: Sequence[int], interval: int, pad: int, order: Sequence[int] | None = None) -> Shared:
    """Elements one after the other, and `pad` elements of nothing behind every `interval`."""
    return Shared(tuple(shape), row_major(shape, order), (interval, pad))


def swizzled(
    shape: Sequence[int], vector: int, per_phase: int, max_phase: int, order: Sequence[int] | None = None
) -> Shared:
    """Rows whose vectors are exchanged: vector v of row r lies at place v ^ (r // per_phase % max_phase).

    Rows go along the first axis of the order, and follow one another along the second.
    """
    axes = list(reversed(range(len(shape)))) if order is None else list(order)
    if len(axes) < 2 or max_phase == 1:
        return plain(shape, axes)
    inner, outer = axes[:2]
    vectors = max(shape[inner] // vector, 1)
    changed = []
    for base in row_major(shape, axes):
        phase = base[outer] // per_phase % min(max_phase, vectors)
        moved = list(base)
        moved[inner] ^= phase * vector
        changed.append(tuple(moved))
    return Shared(tuple(shape), tuple(changed))


def rows_of_banks(shape: Sequence[int], itemsize: int, order: Sequence[int]) -> Shared:
    """Rows of at most 128 bytes, eight of which have their vectors of 16 bytes in all banks once each.

    Rows go along the first axis of the order, and follow one another along the second; what is longer than a row comes
    behind all of them, as more rows. It is what `ldmatrix` reads at once, and one of the forms that `wgmma` knows.
    """
    axes = list(order)
    inner, vector = axes[0], max(_VECTOR_BYTES // itemsize, 1)
    width = min(shape[inner], _ROW_BYTES // itemsize)
    if len(axes) < 2:
        return plain(shape, axes)
    per_phase = max(_ROW_BYTES // (width * itemsize), 1)
    part = [width if axis == inner else size for axis, size in enumerate(shape)]
    rows = swizzled([part[axis] if axis in axes[:2] else 1 for axis in range(len(shape))],
                    vector, per_phase, max(_PHASES // per_phase, 1), axes).offset  # fmt: skip
    behind = [base for base in axis_bits(shape, inner) if base[inner] >= width]
    others = [base for axis in axes[2:] for base in axis_bits(shape, axis)]
    return Shared(tuple(shape), (*rows, *behind, *others))


def read_shared(text: str) -> Shared:
    """The layout of a printed form; LayoutError where it is none."""
    shape, colon, rest = text.partition(":")
    bases, semicolon, padding = rest.partition(";")
    words = padding.split()
    if not colon or (semicolon and (words[:1] != ["padding"] or len(words) != 3 or not "".join(words[1:]).isdigit())):
        raise LayoutError(f"{text!r} is not `shape: offset …` or `shape: offset …; padding interval pad`")
    pad = (int(words[1]), int(words[2])) if semicolon else (0, 0)
    return Shared(read_shape(shape), read_bases(bases, "offset"), pad)
