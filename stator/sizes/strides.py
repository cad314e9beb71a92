"""Strides of tensors as numbers: extents and strides in elements, one for each dim, any of which may be symbolic.

Invariant: nothing is decided about a symbol here; where its size in the first call orders dims, the answer holds for
all calls. Neighbours: `stator.fake.layout` has eager's rules for the strides of results, on numbers of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import overload

from stator.sizes.size import OPERATIONS, Extent
from stator.sizes.writing import fold, hint

Shape = tuple[Extent, ...]


def contiguous(size: Sequence[Extent]) -> Shape:
    """Row-major strides."""
    return _contiguous(tuple(size))


@lru_cache(maxsize=1024)  # of a graph, few sizes differ
def _contiguous(size: Shape) -> Shape:
    strides: list[Extent] = []
    step: Extent = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1) if type(n) is int else n
    return tuple(reversed(strides))


@overload
def span(size: Sequence[int], stride: Sequence[int]) -> int: ...
@overload
def span(size: Sequence[Extent], stride: Sequence[Extent]) -> Extent: ...
def span(size: Sequence[Extent], stride: Sequence[Extent]) -> Extent:
    """How many elements lie between the first and the last, both included."""
    return _span(tuple(size), tuple(stride))


@lru_cache(maxsize=1024)
def _span(size: Shape, stride: Shape) -> Extent:
    last: Extent = 0
    for n, step in zip(size, stride, strict=True):
        if n == 0:
            return 0
        last += (n - 1) * step
    return last + 1


def same_layout(size: Sequence[Extent], a: Sequence[Extent], b: Sequence[Extent]) -> bool:
    """Whether strides place the elements alike: what dims of size 1 say does not matter, and nothing where one is 0."""
    if 0 in size or all(n == 1 or s == t for n, s, t in zip(size, a, b, strict=True)):
        return True
    if all(type(n) is int for n in size):
        return False
    return all(n == 1 or _filled(s, size) == _filled(t, size) for n, s, t in zip(size, a, b, strict=True))


def _filled(step: Extent, size: Sequence[Extent]) -> Extent:
    """A stride where no size is 0: eager's are products of `max(1, n)`."""

    def apply(op: str, left: Extent, right: Extent) -> Extent:
        if op == "max" and 1 in (left, right):
            filled = right if left == 1 else left
            if filled in size:
                return filled
        result: Extent = OPERATIONS[op](left, right)
        return result

    return fold(step, lambda leaf: leaf if isinstance(leaf, int) else leaf.size, apply)


def may_overlap(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether two elements may share a position: a dim steps no farther than the smaller ones reach together.

    Of numbers, or of torch's symbolic ones, which this decides about.
    """
    reach = 0
    for step, n in sorted(zip(stride, size, strict=True)):
        if n > 1 and step <= reach:
            return 0 not in size
        reach += (n - 1) * step
    return False


def is_dense(size: Sequence[Extent], stride: Sequence[Extent]) -> bool:
    """Whether no two elements share a position and no position is left out."""
    if 0 in size:
        return True
    step: Extent = 1
    dims = [(s, n) for n, s in zip(size, stride, strict=True) if n != 1]
    for s, n in sorted(dims, key=lambda dim: (hint(dim[0]), hint(dim[1]))):
        if s != step:
            return False
        step *= n
    return True
