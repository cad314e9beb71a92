"""Layouts: which thread holds which element of a tile, as a linear map over bits.

A thread is a lane (5 bits) of a warp, and has registers. What a bit of the register, the lane or the warp adds to the
coordinates of the element is a base; the element that is held is the exclusive or of the bases of the bits that are
set. A base of zeros is a broadcast: both places hold the same element. Every element is held by somebody.

    8x32: register 0.1 0.2; lane 0.4 0.8 0.16 1.0 2.0; warp 4.0 0.0

is a tile of 8 by 32 on four warps: a thread holds four neighbours of a row, eight lanes make the row, four rows a warp,
and the third and fourth warp hold what the first two do.
Neighbours: `blocked` and `mma` make layouts, `memory` says where elements lie in memory, `conversion` goes between
them. The idea is that of "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (2025).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from math import prod
from operator import lt, mul
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stator.tile.layouts.bits import Span, rank

Base: TypeAlias = tuple[int, ...]
LANES = 5  # bits of a lane's number


class LayoutError(ValueError):
    """What is no layout, or cannot be laid out so."""


class Holder(NamedTuple):
    """A register of a thread; or, of a map, what a bit adds to it."""

    register: int
    lane: int
    warp: int

    def __xor__(self, other: Holder) -> Holder:
        return Holder(self.register ^ other.register, self.lane ^ other.lane, self.warp ^ other.warp)


def flat(shape: Sequence[int], coordinates: Sequence[int]) -> int:
    """The row-major number of an element."""
    found = 0
    for size, coordinate in zip(shape, coordinates, strict=True):
        found = found * size + coordinate
    return found


def unflat(shape: Sequence[int], number: int) -> Base:
    """The coordinates of a row-major number."""
    found = []
    for size in reversed(shape):
        number, coordinate = divmod(number, size)
        found.append(coordinate)
    return tuple(reversed(found))


def axis_bits(shape: Sequence[int], axis: int) -> list[Base]:
    """The bases of an axis, from its lowest bit on."""
    return [
        tuple([1 << bit if i == axis else 0 for i in range(len(shape))]) for bit in range(shape[axis].bit_length() - 1)
    ]


def checked_shape(shape: Sequence[int]) -> None:
    """Raises LayoutError for what cannot be the sizes of a tile."""
    if not shape or any(size < 1 or size & (size - 1) for size in shape):
        raise LayoutError(f"a tile has sizes that are powers of two, not {tuple(shape)}")


_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")


def _made_once(make: Callable[[Layout, _Asked], _Made]) -> Callable[[Layout, _Asked], _Made]:
    """Many operations ask a layout for the same one, which then knows itself what is asked of it."""

    @wraps(make)
    def found(self: Layout, asked: _Asked) -> _Made:
        key = make.__name__, asked
        if key not in self.made:
            self.made[key] = make(self, asked)
        layout: _Made = self.made[key]
        return layout

    return found


@dataclass(frozen=True)
class Layout:
    """The bases of a tile's registers, lanes and warps, each from the lowest bit on. LayoutError where it is none."""

    shape: tuple[int, ...]
    register: tuple[Base, ...]
    lane: tuple[Base, ...]
    warp: tuple[Base, ...]

    def __post_init__(self) -> None:
        checked_shape(self.shape)
        if len(self.lane) != LANES:
            raise LayoutError(f"a lane has {LANES} bits, not {len(self.lane)}")
        for base in self.bases:
            if len(base) != len(self.shape) or min(base) < 0 or not all(map(lt, base, self.shape)):
                raise LayoutError(f"{base} is no element of {self.shape}")
        if 1 << rank(self.columns) != prod(self.shape):
            raise LayoutError(f"{self} does not hold every element")

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.register, self.lane, self.warp))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def bases(self) -> tuple[Base, ...]:
        """All bases: those of registers, of lanes, of warps."""
        return self.register + self.lane + self.warp

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The bases as row-major numbers."""
        strides, stride = [0] * len(self.shape), 1
        for axis in reversed(range(len(self.shape))):
            strides[axis] = stride
            stride *= self.shape[axis]
        return tuple([sum(map(mul, base, strides)) for base in self.bases])

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def registers(self) -> int:
        """How many a thread has."""
        return 1 << len(self.register)

    @property
    def warps(self) -> int:
        return 1 << len(self.warp)

    def number(self, register: int, lane: int, warp: int) -> int:
        """The row-major number of the element that is held."""
        inputs = register | lane << len(self.register) | warp << (len(self.register) + LANES)
        found = 0
        for bit, column in enumerate(self.columns):
            if inputs >> bit & 1:
                found ^= column
        return found

    def coordinates(self, register: int, lane: int, warp: int) -> Base:
        """The element that is held."""
        return unflat(self.shape, self.number(register, lane, warp))

    def split_bits(self, mask: int) -> Holder:
        """A number over all bits, as those of register, lane and warp."""
        registers = len(self.register)
        return Holder(mask & (1 << registers) - 1, mask >> registers & 31, mask >> (registers + LANES))

    @cached_property
    def free_bits(self) -> Holder:
        """Masks of bits that hold duplicates: threads and registers where all of these are 0 hold each element once."""
        span, mask = Span(), 0
        for bit, column in enumerate(self.columns):
            mask |= 0 if span.add(column) else 1 << bit
        return self.split_bits(mask)

    # ---- going between layouts

    def invert_and_compose(self, other: Layout) -> Move:
        """Where another layout of the same shape has what this one holds: own registers first, then the own warp's."""
        found = self._moves.get(other)
        if found is None:
            if other.shape != self.shape:
                raise LayoutError(f"{self} and {other} are of different shapes")
            found = _move(self.columns[: len(self.register)], self.columns, other, len(self.lane))
            self._moves[other] = found
        return found

    @cached_property
    def _moves(self) -> dict[Layout, Move]:
        """Those that have been asked for."""
        return {}

    @cached_property
    def made(self) -> dict[tuple[str, object], Any]:
        """The layouts that have been made of it, by what was asked for."""
        return {}

    def inverse(self, coordinates: Sequence[int]) -> Holder:
        """A holder of an element; that of the lowest bits."""
        parts = Span(self.columns).express(flat(self.shape, coordinates))
        assert parts is not None
        return self.split_bits(parts)

    def equivalent(self, other: Layout) -> bool:
        """Whether every thread holds the same elements, in whichever registers."""
        same = self.shape == other.shape and len(self.warp) == len(other.warp)
        return same and self.invert_and_compose(other).within_thread and other.invert_and_compose(self).within_thread

    # ---- the layouts of results

    def map(self, shape: Sequence[int], change: Callable[[Base], Base], drop: bool = False) -> Layout:
        """With other bases; registers that hold duplicates since are dropped on demand."""
        register, lane, warp = [
            tuple([change(base) for base in part]) for part in (self.register, self.lane, self.warp)
        ]
        if drop:
            span = Span()
            register = tuple([base for base in register if span.add(flat(shape, base))])
        return Layout(tuple(shape), register, lane, warp)

    @_made_once
    def expand_dims(self, axis: int) -> Layout:
        """With a new axis of size 1."""
        return self.map((*self.shape[:axis], 1, *self.shape[axis:]), lambda base: (*base[:axis], 0, *base[axis:]))

    @_made_once
    def squeeze(self, axis: int) -> Layout | None:
        """Without an axis of size 1: the operand's, of what `expand_dims` gives. None for a scalar."""
        if self.rank == 1:
            return None
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        return self.map(shape, lambda base: (*base[:axis], *base[axis + 1 :]))

    @_made_once
    def slice(self, axis: int) -> Layout | None:
        """Without an axis: of what a reduction gives. None for a scalar, which every thread has."""
        if self.rank == 1:
            return None
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        return self.map(shape, lambda base: (*base[:axis], *base[axis + 1 :]), drop=True)

    def squash(self, axes: Iterable[int]) -> Layout:
        """With axes of size 1 in place of some: of what is broadcast to a tile of this layout."""
        return self._squashed(frozenset(axes))

    @_made_once
    def _squashed(self, gone: frozenset[int]) -> Layout:
        shape = [1 if axis in gone else size for axis, size in enumerate(self.shape)]
        return self.map(shape, lambda base: tuple([0 if i in gone else c for i, c in enumerate(base)]), drop=True)

    def transpose(self, order: Sequence[int]) -> Layout:
        """Axis i of the result is axis order[i]."""
        return self.map([self.shape[axis] for axis in order], lambda base: tuple([base[axis] for axis in order]))

    def reshape(self, shape: Sequence[int]) -> Layout:
        """Of the same elements in row-major order."""
        if prod(shape) != prod(self.shape):
            raise LayoutError(f"{self.shape} and {tuple(shape)} have not as many elements")
        return self.map(shape, lambda base: unflat(shape, flat(self.shape, base)))

    def broadcast(self, shape: Sequence[int]) -> Layout:
        """With axes of size 1 grown: by threads that held duplicates first, then by registers.

        The last axis grows first, so that it is what neighbouring lanes differ in.
        """
        wanted = [base for axis in reversed(range(self.rank)) if self.shape[axis] == 1 < shape[axis]
                  for base in axis_bits(shape, axis)]  # fmt: skip
        parts = []
        for part in (self.lane, self.warp):
            parts.append(tuple([base if any(base) or not wanted else wanted.pop(0) for base in part]))
        return Layout(tuple(shape), self.register + tuple(wanted), parts[0], parts[1])

    def join(self) -> Layout:
        """Of two tiles along a new last axis, both in the same thread: the lowest register bit says which."""
        grown = self.map((*self.shape, 1), lambda base: (*base, 0))
        return Layout((*self.shape, 2), ((*[0] * self.rank, 1), *grown.register), grown.lane, grown.warp)

    def split(self) -> Layout:
        """Of the halves of a last axis of 2, both of which a thread has; LayoutError where it has not."""
        half = (*[0] * (self.rank - 1), 1)
        others = [base for base in self.bases if base != half]
        if self.shape[-1] != 2 or half not in self.register or any(base[-1] for base in others):
            raise LayoutError(f"no thread of {self} has both halves of each pair in registers of its own")
        register = tuple([base[:-1] for base in self.register if base != half])
        return Layout(self.shape[:-1], register, *[tuple([b[:-1] for b in part]) for part in (self.lane, self.warp)])

    def cat(self) -> Layout:
        """Of two tiles one behind the other along axis 0, both in the same thread."""
        shape = (self.shape[0] * 2, *self.shape[1:])
        return Layout(shape, (*self.register, (self.shape[0], *[0] * (self.rank - 1))), self.lane, self.warp)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        named = (("register", self.register), ("lane", self.lane), ("warp", self.warp))
        parts = [f"{name} {_bases_text(part)}".rstrip() for name, part in named]
        return f"{shape_text(self.shape)}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Move:
    """Where another layout has what one holds: what each bit of a holder adds to the holder there."""

    register: tuple[Holder, ...]
    lane: tuple[Holder, ...]
    warp: tuple[Holder, ...]

    def source(self, register: int, lane: int, warp: int) -> Holder:
        """The holder in the other layout."""
        found = Holder(0, 0, 0)
        for number, part in ((register, self.register), (lane, self.lane), (warp, self.warp)):
            for bit, column in enumerate(part):
                if number >> bit & 1:
                    found ^= column
        return found

    @property
    def within_warp(self) -> bool:
        """Whether no warp needs anything of another one."""
        others = all(not column.warp for column in self.register + self.lane)
        return others and all(column.warp == 1 << bit for bit, column in enumerate(self.warp))

    @property
    def within_thread(self) -> bool:
        """Whether no thread needs anything of another one."""
        others = all(not column.lane for column in self.register + self.warp)
        return self.within_warp and others and all(column.lane == 1 << bit for bit, column in enumerate(self.lane))

    @property
    def registers(self) -> list[int]:
        """Which register of the other layout each one is, in the first thread; others add what their bits say."""
        return [self.source(register, 0, 0).register for register in range(1 << len(self.register))]

    @property
    def uniform(self) -> bool:
        """Whether it is the same register in every thread."""
        return self.within_thread and not any(column.register for column in self.lane + self.warp)


def _move(registers: Sequence[int], columns: Sequence[int], other: Layout, lanes: int) -> Move:
    """Each bit goes where the least moves: into registers of the same thread, of the same warp, of any."""
    count = len(other.register)
    reach = [Span(other.columns[:count]), Span(other.columns[: count + LANES]), Span(other.columns)]
    parts: list[list[Holder]] = [[], [], []]
    for position, column in enumerate(columns):
        kind, bit = _which(position, len(registers), lanes)
        found = None
        for distance, span in enumerate(reach):
            stays = Holder(0, 0, 0)
            if kind == 1 and distance == 0:
                stays = Holder(0, 1 << bit, 0)
            elif kind == 2 and distance < 2 and bit < len(other.warp):
                stays = Holder(0, 0, 1 << bit)
            rest = column ^ other.number(*stays)
            mask = span.express(rest)
            if mask is not None:
                found = other.split_bits(mask) ^ stays
                break
        assert found is not None, "a layout holds every element"
        parts[kind].append(found)
    return Move(*[tuple(part) for part in parts])


def _which(position: int, registers: int, lanes: int) -> tuple[int, int]:
    """Of a bit's position: whether it is one of a register, a lane or a warp, and which."""
    if position < registers:
        return 0, position
    if position < registers + lanes:
        return 1, position - registers
    return 2, position - registers - lanes


# ---- text


def shape_text(shape: Sequence[int]) -> str:
    """Sizes as text: `16x32`."""
    return "x".join(map(str, shape))


def _bases_text(bases: Sequence[Base]) -> str:
    return " ".join([".".join(map(str, base)) for base in bases])


def read_shape(text: str) -> tuple[int, ...]:
    """Reads what `shape_text` writes; LayoutError for anything else."""
    if not re.fullmatch(r"\d+(x\d+)*", text):
        raise LayoutError(f"{text!r} is no shape")
    return tuple(map(int, text.split("x")))


def read_bases(text: str, name: str) -> tuple[Base, ...]:
    """The bases behind a name."""
    words = text.split()
    if not words or words[0] != name or not all(re.fullmatch(r"\d+(\.\d+)*", word) for word in words[1:]):
        raise LayoutError(f"{text.strip()!r} is not `{name}` and its bases")
    return tuple([tuple(map(int, word.split("."))) for word in words[1:]])


def read_layout(text: str) -> Layout:
    """The layout of a printed form; LayoutError where it is none."""
    shape, colon, rest = text.partition(":")
    parts = rest.split(";")
    if not colon or len(parts) != 3:
        raise LayoutError(f"{text!r} is not `shape: register …; lane …; warp …`")
    bases = [read_bases(part, name) for part, name in zip(parts, ("register", "lane", "warp"), strict=True)]
    return Layout(read_shape(shape), *bases)
