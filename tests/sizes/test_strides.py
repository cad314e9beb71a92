"""Stride arithmetic against the positions of all elements, counted one by one."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from stator.sizes import Symbol, maximum
from stator.sizes.strides import contiguous, is_dense, may_overlap, same_layout, span

DIMS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=3)


def positions(size: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Where the elements lie, in row-major order."""
    return [sum(i * step for i, step in zip(at, stride, strict=True)) for at in product(*map(range, size))]


@given(DIMS)
def test_span_and_density(dims: list[tuple[int, int]]) -> None:
    size, stride = tuple(n for n, _ in dims), tuple(step for _, step in dims)
    at = positions(size, stride)
    assert span(size, stride) == (max(at) + 1 if at else 0)
    assert is_dense(size, stride) is (sorted(at) == list(range(len(at))))
    assert may_overlap(size, stride) or len(set(at)) == len(at)
    assert not (is_dense(size, stride) and may_overlap(size, stride))


@given(DIMS, st.permutations(range(3)))
def test_contiguous_is_row_major(dims: list[tuple[int, int]], order: list[int]) -> None:
    size = tuple(n for n, _ in dims)
    stride = contiguous(size)
    assert positions(size, stride) == list(range(span(size, stride)))
    order = [d for d in order if d < len(size)]
    assert is_dense(tuple(size[d] for d in order), tuple(stride[d] for d in order))


@given(DIMS, st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_layouts_are_the_same_where_all_positions_are(dims: list[tuple[int, int]], other: list[int]) -> None:
    size, a, b = tuple(n for n, _ in dims), tuple(step for _, step in dims), tuple(other[: len(dims)])
    assert same_layout(size, a, b) is (positions(size, a) == positions(size, b))
    assert same_layout(size, a, a)


def test_layouts_that_differ_where_nothing_is_are_the_same() -> None:
    n, m = (Symbol(f"s{i}", None, None, 5).size for i in range(2))
    size = (3, n, 4)
    assert same_layout(size, (4 * maximum(1, n), 4, 1), (4 * n, 4, 1))
    assert same_layout((3, n, m), (m * maximum(1, n), m, 1), (maximum(1, m) * n, maximum(1, m), 1))
    assert not same_layout(size, (4 * maximum(1, m), 4, 1), (4 * m, 4, 1))
    assert not same_layout(size, (4 * maximum(2, n), 4, 1), (4 * n, 4, 1))
