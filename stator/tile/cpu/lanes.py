"""What an element, or a vector of elements, of a tile is while code is written; and where in the tile it is.

`Lanes` is a number for all lanes (width 0), a run (the first lane's number, each further one `step` more), or a vector.
A `Coordinate` says where along one axis the lanes are: all at one place, one after the other from a base on, or
anywhere. `aligned` bases are multiples of the width, as axis information wants them.
Neighbours: `evaluate` computes with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stator.tile.cpu.code import Code, Maker


@dataclass(frozen=True, slots=True)
class Lanes:
    """A text, the LLVM type of one lane, and how the lanes follow from it."""

    text: str
    type: str
    width: int = 0
    step: int | None = None

    @property
    def uniform(self) -> bool:
        return self.width == 0


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A place along an axis, as i64: `base`, `base + step * lane`, or a vector if `vector` is set."""

    base: str
    step: int = 0
    aligned: bool = False
    vector: str = ""

    @property
    def uniform(self) -> bool:
        return not self.step and not self.vector

    @property
    def runs(self) -> bool:
        """Whether axis information tells of these lanes."""
        return self.step == 1 and self.aligned and not self.vector


Index: TypeAlias = tuple[Coordinate, ...]
ORIGIN = Coordinate("0")


def expanded(code: Code, lanes: Lanes, width: int) -> str:
    """The text of a vector."""
    if not width:
        return lanes.text
    m = Maker(code, width)
    if lanes.uniform:
        return m.splat(lanes.type, lanes.text)
    if lanes.step is None:
        return lanes.text
    return m.op("add", lanes.type, m.splat(lanes.type, lanes.text), m.iota(lanes.type, lanes.step))


# ---- arithmetic of places, that knows small constants


def plus(code: Code, a: str, b: str) -> str:
    if "0" in (a, b):
        return b if a == "0" else a
    if a.isdigit() and b.isdigit():
        return str(int(a) + int(b))
    return code.value(f"add nsw i64 {a}, {b}")


def times(code: Code, a: str, factor: int) -> str:
    if a == "0" or factor == 0:
        return "0"
    if factor == 1:
        return a
    return str(int(a) * factor) if a.isdigit() else code.value(f"mul nsw i64 {a}, {factor}")


def divided(code: Code, a: str, by: int) -> tuple[str, str]:
    """The quotient and the remainder of a place."""
    if by == 1:
        return a, "0"
    if a.isdigit():
        return str(int(a) // by), str(int(a) % by)
    return code.value(f"udiv i64 {a}, {by}"), code.value(f"urem i64 {a}, {by}")


def vector_of(code: Code, coordinate: Coordinate, width: int) -> str:
    """A place of each lane."""
    if coordinate.vector:
        return coordinate.vector
    m = Maker(code, width)
    spread = m.splat("i64", coordinate.base)
    return m.op("add", "i64", spread, m.iota("i64", coordinate.step)) if coordinate.step else spread


def linear(code: Code, index: Sequence[Coordinate], shape: Sequence[int], width: int) -> Coordinate:
    """Where in a row-major tile an element lies."""
    base, step, vector, stride = "0", 0, "", 1
    aligned = False
    for coordinate, size in zip(reversed(index), reversed(shape), strict=True):
        if coordinate.vector:
            m = Maker(code, width)
            scaled = coordinate.vector
            if stride != 1:
                scaled = m.op("mul", "i64", scaled, m.number("i64", stride))
            vector = m.op("add", "i64", vector, scaled) if vector else scaled
        else:
            base = plus(code, base, times(code, coordinate.base, stride))
            step += coordinate.step * stride
            aligned = aligned or coordinate.aligned
        stride *= size
    if not vector:
        return Coordinate(base, step, aligned and step == 1)
    rest = Coordinate(base, step)
    m = Maker(code, width)
    return Coordinate("0", vector=m.op("add", "i64", vector, vector_of(code, rest, width)))


def unlinear(code: Code, place: Coordinate, shape: Sequence[int], width: int) -> Index:
    """The index of a tile at a row-major place."""
    found: list[Coordinate] = []
    if place.uniform or (place.runs and shape and shape[-1] % width == 0):
        base, step = place.base, place.step
        for size in reversed(shape):
            base, rest = divided(code, base, size)
            found.append(Coordinate(rest, step, place.aligned and step == 1))
            step = 0
        return tuple(reversed(found))
    vector, m = vector_of(code, place, width), Maker(code, width)
    for size in reversed(shape):
        divisor = m.number("i64", size)
        found.append(Coordinate("0", vector=m.op("urem", "i64", vector, divisor)) if size > 1 else ORIGIN)
        vector = m.op("udiv", "i64", vector, divisor) if size > 1 else vector
    return tuple(reversed(found))
