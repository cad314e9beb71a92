"""Bounds of axes under masks: they are those with which a load happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stator.loop.digits import Layout
from stator.loop.expr import Expr, const, index, load, masked, op
from stator.loop.index import Axis, Index
from stator.loop.masks import bounds_of_loads, narrowed
from stator.sizes import Extent, Symbol, evaluate

X, Y = Axis("x", 20), Axis("y", 7)


def compared(name: str, step: int, shift: int, limit: int) -> Expr:
    return op(name, index(X.index * step + shift), const(limit, "i64"))


@given(
    st.sampled_from(("lt", "le", "gt", "ge")),
    st.sampled_from((-3, -2, -1, 1, 2, 3)),
    st.integers(-9, 9),
    st.integers(-9, 9),
)
def test_bounds_are_the_points_where_it_holds(name: str, step: int, shift: int, limit: int) -> None:
    compare = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}[name]
    points = [x for x in range(20) if compare(step * x + shift, limit)]
    low, high = narrowed(compared(name, step, shift, limit)).get(X, (0, 19))
    assert not points or (low, high) == (points[0], points[-1])


N = Symbol("n0", 2, None, 9)
Z = Axis("z", (N.size + 1) // 2)


@given(
    st.sampled_from(("lt", "le", "gt", "ge")),
    st.sampled_from((-3, -2, -1, 1, 2, 3)),
    st.integers(-9, 9),
    st.sampled_from((0, 1, 3, N.size, N.size - 2, (N.size + 3) // 4)),
    st.integers(2, 30),
)
def test_bounds_of_symbolic_axes_enclose_the_points_where_it_holds(
    name: str, step: int, shift: int, limit: Extent, n: int
) -> None:
    compare = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}[name]
    mask = op(name, index(Z.index * step + shift), index(Index.of(limit)))
    points = [z for z in range((n + 1) // 2) if compare(step * z + shift, evaluate(limit, {N: n}))]
    low, high = [evaluate(bound, {N: n}) for bound in narrowed(mask).get(Z, (0, Z.size - 1))]
    assert all(low <= point <= high for point in points)


def test_borders_of_symbolic_images_are_taken_apart() -> None:
    """Windows of three, every second pixel, over rows of n pixels: under the masks a row is a row."""
    width = (N.size + 1) // 2
    row, column, channel = Axis("r", 4), Axis("q", (width + 1) // 2), Axis("c", 3)
    for across in (-1, 0, 1):
        place = (channel.index * 8 + row.index * 2) * width + column.index * 2 + across
        inside = index(column.index * 2 + across)
        mask = op("and", op("ge", inside, const(0, "i64")), op("lt", inside, index(Index.of(width))))
        found = Layout((3, 8 * width), (1, 0)).index(place, narrowed(mask))
        assert found == (row.index * 2 * width + column.index * 2 + across) * 3 + channel.index


def test_the_widest_mask_around_a_load_counts() -> None:
    value, nothing = load("b", X.index + Y.index, "f32"), const(0.0, "f32")
    narrow = masked(op("and", compared("lt", 1, 0, 5), compared("ge", 1, 0, 2)), value, nothing)
    wide = masked(compared("lt", 1, 0, 9), value, nothing)
    assert bounds_of_loads(narrow) == {value.attr: {X: (2, 4)}}
    assert bounds_of_loads(op("add", narrow, wide)) == {value.attr: {X: (0, 8)}}
    assert bounds_of_loads(op("add", narrow, value)) == {}


def test_positions_in_a_border_are_taken_apart() -> None:
    """An image of 4 rows of 5, with a border of one on each side: under the mask a row is a row."""
    row, column, channel = Axis("r", 6), Axis("q", 7), Axis("c", 3)
    place = channel.index * 20 + (row.index - 1) * 5 + column.index - 1
    found = Layout((3, 20), (1, 0)).index(place, {row: (1, 4), column: (1, 5)})
    assert found == ((row.index - 1) * 5 + column.index - 1) * 3 + channel.index
