"""The index algebra: every identity it uses holds for all values, and bounds enclose them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.loop.expr import const, load
from stator.loop.index import Axis, Index, indirect

AXES = (Axis("a", 4), Axis("b", 3), Axis("c", 6), Axis("d", 1))
POINTS = [dict(zip(AXES, point, strict=True)) for point in product(*[range(axis.size) for axis in AXES])]
FACTORS = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 24))


class Pair:
    """An index, and a Python function that says what it should be."""

    def __init__(self, index, value):  # type: ignore[no-untyped-def]
        self.index, self.value = index, value


def leaf(axis: Axis) -> Pair:
    return Pair(Index.of(axis), lambda point: point[axis])


def combine(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.one_of(
        st.builds(lambda a, b: Pair(a.index + b.index, lambda p: a.value(p) + b.value(p)), children, children),
        st.builds(lambda a, b: Pair(a.index - b.index, lambda p: a.value(p) - b.value(p)), children, children),
        st.builds(lambda a, n: Pair(a.index * n, lambda p: a.value(p) * n), children, st.integers(-8, 24)),
        st.builds(lambda a, n: Pair(a.index // n, lambda p: a.value(p) // n), children, FACTORS),
        st.builds(lambda a, n: Pair(a.index % n, lambda p: a.value(p) % n), children, FACTORS),
        st.builds(lambda a, n: Pair(a.index + n, lambda p: a.value(p) + n), children, st.integers(-30, 30)),
    )


PAIRS = st.recursive(st.sampled_from([leaf(axis) for axis in AXES]), combine, max_leaves=8)


@settings(max_examples=600)
@given(PAIRS)
def test_value_and_bounds(pair: Pair) -> None:
    low, high = pair.index.bounds()
    for point in POINTS:
        value = pair.value(point)
        assert pair.index.evaluate(point) == value, repr(pair.index)
        assert low <= value <= high


@settings(max_examples=200)
@given(PAIRS, PAIRS)
def test_substitution(pair: Pair, inner: Pair) -> None:
    part = inner.index % 6
    result = pair.index.substitute({AXES[2]: part})
    for point in POINTS[::5]:
        moved = {**point, AXES[2]: inner.value(point) % 6}
        assert result.evaluate(point) == pair.value(moved)


@settings(max_examples=300)
@given(
    st.lists(st.integers(-30, 30), min_size=4, max_size=4), st.integers(-50, 50), st.integers(1, 40), st.integers(1, 12)
)
def test_split_and_join_is_the_identity(coefficients: list[int], const: int, n: int, k: int) -> None:
    index = sum([axis.index * c for axis, c in zip(AXES, coefficients, strict=True)], Index.of(const))
    assert (index // n) * n + index % n is index
    plain = Axis("x", 1000).index
    assert (plain // n % k) * n + plain % n is plain % (n * k)


@given(PAIRS, PAIRS)
def test_normal_form_is_interned(left: Pair, right: Pair) -> None:
    assert left.index + right.index is right.index + left.index
    assert left.index + right.index - right.index is left.index


@given(PAIRS, FACTORS)
def test_divisibility_is_never_wrong(pair: Pair, n: int) -> None:
    if pair.index.divisible_by(n):
        assert all(pair.value(point) % n == 0 for point in POINTS)


@given(PAIRS)
def test_strides(pair: Pair) -> None:
    for axis in AXES:
        stride = pair.index.stride(axis)
        if stride is not None:
            for point in POINTS[::7]:
                if point[axis] + 1 < axis.size:
                    assert pair.value({**point, axis: point[axis] + 1}) - pair.value(point) == stride


a, b, x = Axis("a", 128), Axis("b", 64), Axis("x", 8192)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ((a.index * 64 + b) // 64, "a"),
        ((a.index * 64 + b) % 64, "b"),
        (x.index // 64 * 64 + x.index % 64, "x"),
        (x.index // 8 % 8 * 8 + x.index % 8, "x%64"),
        (x.index // 64 // 2, "x//128"),
        (x.index % 64 % 8, "x%8"),
        (x.index % 64 // 8, "(x//8)%8"),
        ((a.index * 64 + b) // 8, "8*a + b//8"),
        ((a.index * 64 + b) // 128, "a//2"),
        ((a.index * 64 + b + 64) // 64, "a + 1"),
        (x.index // 64 % 128, "x//64"),
        (23 - a.index * 2, "-2*a + 23"),
        (23 - a.index // 2, "-(a//2) + 23"),  # Python reads -a//2 as (-a)//2
        ((x.index // 64) * 12 + (x.index % 64) // 2, "12*(x//64) + (x//2)%32"),
    ],
)
def test_normal_forms(index: Index, text: str) -> None:
    assert repr(index) == text


def test_axes_of_one_point_vanish() -> None:
    assert Index.of(Axis("one", 1)) is Index.of(0)


def test_indirect() -> None:
    loaded = load("table", a.index, "i64")
    index = indirect(loaded, 100) * 64 + b
    assert index.bounds() == (0, 6399)
    assert index.axes() == {a, b}
    assert index // 64 is indirect(loaded, 100)
    assert index.evaluate({a: 0, b: 5}, lambda expr: 7) == 453
    moved = index.substitute({a: Index.of(3)})
    assert moved.indirects()[0].expr is load("table", 3, "i64")
    assert moved.axes() == {b}


def test_what_is_loaded_and_known_is_a_number() -> None:
    """Also where it is only known for some values of symbols; what is out of range stays an error at run time."""
    assert indirect(const(3, "i64"), 10) is Index.of(3)
    assert indirect(const(10, "i64"), 10).has_indirect and indirect(const(-1, "i64"), 10).has_indirect
    loaded = load("table", a.index, "i64")
    index = indirect(loaded, 100) * 2 + b
    assert index.resized(lambda size: size, lambda expr: const(7, "i64")) is b.index + 14


def test_division_needs_a_positive_divisor() -> None:
    with pytest.raises(ValueError, match="positive"):
        a.index // 0
    with pytest.raises(ValueError, match="positive"):
        (a.index - 1) % -2
