"""Layouts: what their methods say is so in every register of every lane of every warp."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.tile.layouts.blocked import blocked, spread
from stator.tile.layouts.linear import LANES, Base, Layout, LayoutError, flat
from stator.tile.layouts.text import read
from tests.tile.layouts.drawn import layouts, pairs

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def holders(layout: Layout) -> list[tuple[int, int, int]]:
    return list(itertools.product(range(layout.registers), range(1 << LANES), range(layout.warps)))


@quick
@given(layouts())
def test_a_line_is_read_as_the_same(layout: Layout) -> None:
    assert read(str(layout)) == layout and hash(read(str(layout))) == hash(layout)


@quick
@given(layouts())
def test_every_element_has_a_holder_that_inverse_finds(layout: Layout) -> None:
    assert {layout.coordinates(*holder) for holder in holders(layout)} == set(
        itertools.product(*map(range, layout.shape))
    )
    for element in itertools.product(*map(range, layout.shape)):
        assert layout.coordinates(*layout.inverse(element)) == element


@quick
@given(layouts())
def test_without_free_bits_each_element_has_one_holder(layout: Layout) -> None:
    free = layout.free_bits
    once = [h for h in holders(layout) if not any(number & mask for number, mask in zip(h, free, strict=True))]
    assert len(once) == prod(layout.shape) == len({layout.coordinates(*holder) for holder in once})


@quick
@given(pairs())
def test_moves_lead_to_the_same_element(pair: tuple[Layout, Layout]) -> None:
    target, source = pair
    move = target.invert_and_compose(source)
    for register, lane, warp in holders(target):
        found = move.source(register, lane, warp)
        assert source.coordinates(*found) == target.coordinates(register, lane, warp)
        assert not move.within_warp or found.warp == warp
        assert not move.within_thread or found.lane == lane
        assert not move.uniform or found.register == move.registers[register]


@quick
@given(pairs())
def test_moves_leave_the_thread_only_where_they_must(pair: tuple[Layout, Layout]) -> None:
    target, source = pair
    move = target.invert_and_compose(source)
    for lane, warp in itertools.product(range(1 << LANES), range(target.warps)):
        own = {source.coordinates(register, lane, warp) for register in range(source.registers)}
        wanted = {target.coordinates(register, lane, warp) for register in range(target.registers)}
        assert not move.within_thread or wanted <= own
        if (lane, warp) == (0, 0) and len(move.register) == 0 == len(source.register):
            assert wanted <= own  # both hold element 0 there
    everywhere = all(
        {target.coordinates(r, lane, warp) for r in range(target.registers)}
        <= {source.coordinates(r, lane, warp) for r in range(source.registers)}
        for lane, warp in itertools.product(range(1 << LANES), range(target.warps))
    )
    assert move.within_thread == everywhere


@quick
@given(layouts(), st.data())
def test_views_hold_what_numpy_says(layout: Layout, data: st.DataObject) -> None:
    tile = np.arange(prod(layout.shape)).reshape(layout.shape)
    axis = data.draw(st.integers(0, layout.rank))
    order = data.draw(st.permutations(range(layout.rank)))
    same(layout.expand_dims(axis), np.expand_dims(tile, axis), layout, tile)
    same(layout.transpose(order), np.transpose(tile, order), layout, tile)
    same(layout.reshape((prod(layout.shape),)), tile.reshape(-1), layout, tile)
    assert layout.expand_dims(axis).squeeze(axis) == layout
    assert layout.transpose(order).transpose(np.argsort(order).tolist()) == layout
    joined = layout.join()
    assert joined.split() == layout
    for register, lane, warp in holders(joined):
        assert joined.coordinates(register, lane, warp) == (
            *layout.coordinates(register >> 1, lane, warp),
            register & 1,
        )


def same(view: Layout, seen: np.ndarray, layout: Layout, tile: np.ndarray) -> None:
    """The same register holds the same number."""
    assert view.shape == seen.shape and view.registers == layout.registers
    for holder in holders(layout):
        assert seen[view.coordinates(*holder)] == tile[layout.coordinates(*holder)]


@quick
@given(layouts(), st.data())
def test_a_slice_has_each_row_where_elements_of_it_are(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    sliced = layout.slice(axis)
    if layout.rank == 1:
        assert sliced is None
        return
    assert sliced is not None
    for lane, warp in itertools.product(range(1 << LANES), range(layout.warps)):
        rows = {without(layout.coordinates(r, lane, warp), axis) for r in range(layout.registers)}
        assert rows == {sliced.coordinates(r, lane, warp) for r in range(sliced.registers)}
    assert sliced.expand_dims(axis).equivalent(layout.squash([axis]))


def without(element: Base, axis: int) -> Base:
    return (*element[:axis], *element[axis + 1 :])


@quick
@given(layouts(shape=(8, 1)))
def test_a_broadcast_needs_nothing_of_other_threads(layout: Layout) -> None:
    grown = layout.broadcast((8, 16))
    assert grown.squash([1]).invert_and_compose(layout).uniform
    assert grown.warps == layout.warps


def test_threads_that_hold_duplicates_get_what_a_broadcast_adds() -> None:
    column = read("32x1: register; lane 1.0 2.0 4.0 0.0 0.0; warp 8.0 16.0")
    assert isinstance(column, Layout)
    assert str(column.broadcast((32, 8))) == "32x8: register 0.4; lane 1.0 2.0 4.0 0.1 0.2; warp 8.0 16.0"


@quick
@given(layouts())
def test_equivalent_layouts_differ_in_registers_alone(layout: Layout) -> None:
    assert layout.equivalent(layout)
    turned = Layout(layout.shape, layout.register[::-1], layout.lane, layout.warp)
    assert turned.equivalent(layout)
    double = Layout(layout.shape, (*layout.register, (0,) * layout.rank), layout.lane, layout.warp)
    assert double.equivalent(layout) and double != layout


def test_a_block_is_where_it_was_asked_for() -> None:
    found = blocked((16, 32), (1, 4), (4, 8), (4, 1), (1, 0))
    assert str(found) == "16x32: register 0.1 0.2; lane 0.4 0.8 0.16 1.0 2.0; warp 4.0 8.0"
    assert blocked((4, 4), (1, 4), (4, 8), (4, 1), (1, 0)).free_bits == (0, 0b111, 0b11)
    wide = blocked((64, 32), (1, 4), (4, 8), (4, 1), (1, 0))
    assert wide.register == ((0, 1), (0, 2), (16, 0), (32, 0))


@pytest.mark.parametrize("warps", [1, 2, 8])
@pytest.mark.parametrize("shape", [(1,), (8,), (4096,), (2, 64), (64, 2), (4, 4, 4)])
def test_spread_uses_all_threads_before_it_repeats(shape: tuple[int, ...], warps: int) -> None:
    found = spread(shape, (1,) * len(shape), tuple(reversed(range(len(shape)))), warps)
    assert found.registers == max(prod(shape) // (32 * warps), 1) and found.warps == warps


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3: register; lane 1 2 0 0 0; warp", "powers of two"),
        ("4: register; lane 1 2 0 0; warp", "has 5 bits, not 4"),
        ("4: register; lane 1 0 0 0 0; warp", "does not hold every element"),
        ("4: register 4; lane 1 2 0 0 0; warp", "is no element of"),
        ("4: register 0.1; lane 1 2 0 0 0; warp", "is no element of"),
        ("4: lane 1 2 0 0 0; warp", "is no layout"),
        ("4: register; lane 1 2 0 0 0", "is not `shape: register"),
        ("4: register; warp 1 2 0 0 0; lane", "is not `lane` and its bases"),
        ("4: register x; lane 1 2 0 0 0; warp", "is not `register` and its bases"),
        ("four: register; lane 1 2 0 0 0; warp", "is no shape"),
        ("", "is no layout"),
    ],
)
def test_what_is_no_layout_is_refused(line: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read(line)


def test_constructors_say_what_is_wrong() -> None:
    with pytest.raises(LayoutError, match="a number for each axis"):
        blocked((16, 32), (1, 4), (4, 8), (4, 1), (1, 1))
    with pytest.raises(LayoutError, match="32 lanes"):
        blocked((16, 32), (1, 4), (4, 4), (4, 1), (1, 0))
    layout = spread((4, 8), (1, 1), (1, 0), 1)
    with pytest.raises(LayoutError, match=r"no thread of .* has both halves"):
        layout.reshape((16, 2)).split()
    with pytest.raises(LayoutError, match="not as many elements"):
        layout.reshape((16, 4))
    with pytest.raises(LayoutError, match="different shapes"):
        layout.invert_and_compose(layout.transpose((1, 0)))
    assert flat((4, 8), (3, 7)) == 31
