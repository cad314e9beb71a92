"""Layouts that Hypothesis draws: any that holds every element, with broadcasts and bases that are mixed."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from stator.tile.layouts.linear import LANES, Layout, unflat
from stator.tile.layouts.memory import Shared

SHAPES: list[tuple[int, ...]] = [(1,), (2,), (64,), (8, 16), (32, 8), (4, 4, 8), (16, 1)]


@st.composite
def columns(draw: st.DrawFn, bits: int, count: int) -> list[int]:
    """So many columns that span all of so many bits."""
    found = [1 << bit for bit in range(bits)] + [0] * (count - bits)
    found = draw(st.permutations(found))
    for _ in range(draw(st.integers(0, 4)) if count > 1 else 0):
        i, j = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
        found[i] ^= found[j]
    return list(found)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...] | None = None, warps: int | None = None) -> Layout:
    """A layout of a shape, for so many bits of a warp's number."""
    shape = draw(st.sampled_from(SHAPES)) if shape is None else shape
    warps = draw(st.integers(0, 2)) if warps is None else warps
    bits = prod(shape).bit_length() - 1
    least = max(bits - LANES - warps, 0)
    registers = draw(st.integers(least, max(min(bits, 4), least)))
    bases = [unflat(shape, column) for column in draw(columns(bits, registers + LANES + warps))]
    return Layout(
        shape,
        tuple(bases[:registers]),
        tuple(bases[registers : registers + LANES]),
        tuple(bases[registers + LANES :]),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two layouts of a shape; half of the time the second one has the first one's bases elsewhere in the warp."""
    first = draw(layouts())
    if draw(st.booleans()):
        return first, draw(layouts(first.shape, len(first.warp)))
    bases = draw(st.permutations(first.register + first.lane))
    count = len(first.register)
    return first, Layout(first.shape, tuple(bases[:count]), tuple(bases[count:]), first.warp)


@st.composite
def memories(draw: st.DrawFn, shape: tuple[int, ...]) -> Shared:
    """A layout of shared memory, with padding at times."""
    bits = prod(shape).bit_length() - 1
    bases = tuple([unflat(shape, column) for column in draw(columns(bits, bits))])
    padding = draw(st.sampled_from([(0, 0), (8, 8), (16, 4), (4, 2)]))
    return Shared(shape, bases, padding)
