"""Layouts of shared memory, those of tensor cores, and pictures of both."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stator.tile as triton
from stator.tile.layouts.linear import Layout, LayoutError
from stator.tile.layouts.memory import Shared, padded, plain, swizzled
from stator.tile.layouts.mma import dot_operand, fma_operand, is_mma, mma
from stator.tile.layouts.text import read
from tests.tile.layouts.drawn import SHAPES, memories

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@quick
@given(st.sampled_from(SHAPES).flatmap(memories))
def test_each_element_has_its_place(shared: Shared) -> None:
    assert read(str(shared)) == shared
    elements = list(itertools.product(*map(range, shared.shape)))
    places = [shared.padded(shared.offset_of(element)) for element in elements]
    assert len(set(places)) == len(elements) and max(places) + 1 == shared.size
    assert all(shared.coordinates(shared.offset_of(element)) == element for element in elements)
    turned = shared.transpose(list(reversed(range(shared.rank))))
    assert all(turned.offset_of(element[::-1]) == shared.offset_of(element) for element in elements)


def test_swizzled_rows_exchange_vectors() -> None:
    shared = swizzled((16, 32), 4, 2, 4)
    for row, column in itertools.product(range(16), range(32)):
        vector, rest = divmod(column, 4)
        assert shared.offset_of((row, column)) == row * 32 + (vector ^ row // 2 % 4) * 4 + rest
    assert swizzled((16, 32), 4, 1, 1) == plain((16, 32))
    assert swizzled((32, 16), 4, 2, 4, (0, 1)) == swizzled((16, 32), 4, 2, 4).transpose((1, 0))
    assert padded((4, 8), 8, 2).padded(padded((4, 8), 8, 2).offset_of((3, 1))) == 31


def test_tensor_cores_hold_what_the_manual_draws() -> None:
    """Results of m16n8k16: c0, c1 at row t / 4, columns 2 (t % 4) and one more; c2, c3 eight rows below."""
    result = mma((16, 8), (1, 1))
    a, b = dot_operand(result, 0, 16, 2), dot_operand(result, 1, 16, 2)
    for lane, i in itertools.product(range(32), range(8)):
        group, thread = divmod(lane, 4)
        if i < 4:
            assert result.coordinates(i, lane, 0) == (group + 8 * (i // 2), thread * 2 + i % 2)
            assert b.coordinates(i, lane, 0) == (thread * 2 + i % 2 + 8 * (i // 2), group)
        assert a.coordinates(i, lane, 0) == (group + 8 * (i // 2 % 2), thread * 2 + i % 2 + 8 * (i // 4))
    bytes_ = dot_operand(result, 0, 32, 4)
    for lane, i in itertools.product(range(32), range(16)):
        group, thread = divmod(lane, 4)
        assert bytes_.coordinates(i, lane, 0) == (group + 8 * (i // 4 % 2), thread * 4 + i % 4 + 16 * (i // 8))
    words = dot_operand(result, 0, 8, 1)
    for lane, i in itertools.product(range(32), range(4)):
        assert words.coordinates(i, lane, 0) == (lane // 4 + 8 * (i % 2), lane % 4 + 4 * (i // 2))


@pytest.mark.parametrize("shape", [(64, 128), (16, 8), (128, 16), (2, 32, 64)])
@pytest.mark.parametrize("warps", [(1, 1), (2, 2), (4, 1)])
def test_a_warp_has_the_operands_of_its_results(shape: tuple[int, ...], warps: tuple[int, int]) -> None:
    layout = mma(shape, (*[1] * (len(shape) - 2), *warps))
    assert is_mma(layout) and not is_mma(fma_operand(layout, 0, shape[-1]))
    a, b = dot_operand(layout, 0, 32, 2), dot_operand(layout, 1, 32, 2)
    for warp in range(layout.warps):
        everything = itertools.product(range(layout.registers), range(32))
        results = {layout.coordinates(register, lane, warp) for register, lane in everything}
        rows = {element[:-1] for element in results}
        columns = {(*element[:-2], element[-1]) for element in results}
        left = {
            a.coordinates(register, lane, warp) for register, lane in itertools.product(range(a.registers), range(32))
        }
        right = {
            b.coordinates(register, lane, warp) for register, lane in itertools.product(range(b.registers), range(32))
        }
        assert left == {(*row, k) for row in rows for k in range(32)}
        assert right == {(*column[:-1], k, column[-1]) for column in columns for k in range(32)}


def test_a_thread_without_tensor_cores_has_rows_and_columns() -> None:
    layout = read("8x16: register 0.1 1.0; lane 0.2 0.4 0.8 2.0 4.0; warp")
    assert isinstance(layout, Layout)
    a, b = fma_operand(layout, 0, 4), fma_operand(layout, 1, 4)
    for lane in range(32):
        results = [layout.coordinates(register, lane, 0) for register in range(4)]
        assert {a.coordinates(r, lane, 0) for r in range(a.registers)} == {(i, k) for i, _ in results for k in range(4)}
        assert {b.coordinates(r, lane, 0) for r in range(b.registers)} == {(k, j) for _, j in results for k in range(4)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mma((8, 8), (1, 1)), "16 by 8 elements at least"),
        (lambda: dot_operand(mma((16, 8), (1, 1)), 0, 8, 2), "16 elements of this dtype at once, not 8"),
        (lambda: dot_operand(fma_operand(mma((16, 8), (1, 1)), 0, 16), 0, 16, 2), "no layout of tensor cores"),
        (lambda: read("4: offset 1 1"), "a place for each element"),
        (lambda: read("4: offset 1"), "a place for each element"),
        (lambda: read("4: offset 1 4"), "is no element of"),
        (lambda: read("4: offset 1 2; padding 3 1"), "padding is a power of two"),
        (lambda: read("4: offset 1 2; padding 4"), "is not `shape: offset"),
        (lambda: read("4: offset 1 2; room 4 1"), "is not `shape: offset"),
    ],
)
def test_what_is_no_memory_is_refused(make: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        make()  # type: ignore[operator]


# ---- pictures

PICTURE = """\
2x8: register 0.1; lane 0.2 0.4 1.0 0.0 0.0; warp 0.0

         2x8          0         1         2         3         4         5         6         7
         0 |   0:0:0 x8  0:0:1 x8  0:1:0 x8  0:1:1 x8  0:2:0 x8  0:2:1 x8  0:3:0 x8  0:3:1 x8
         1 |   0:4:0 x8  0:4:1 x8  0:5:0 x8  0:5:1 x8  0:6:0 x8  0:6:1 x8  0:7:0 x8  0:7:1 x8
"""
MEMORY = """\
4x4: offset 0.1 0.2 1.2 2.0

         4x4      0     1     2     3
         0 |    0/0   1/0   2/1   3/1
         1 |    6/3   7/3   4/2   5/2
         2 |    8/4   9/4  10/5  11/5
         3 |   14/7  15/7  12/6  13/6
"""


def test_a_picture_shows_the_holder_of_each_element() -> None:
    picture = triton.show_layout(PICTURE.splitlines()[0])
    assert str(picture) == picture.text == PICTURE
    root = ElementTree.fromstring(picture.svg)
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == PICTURE.splitlines()[0] and texts[1:4] == ["0:0:0 x8", "0:0:1 x8", "0:1:0 x8"]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 16 and picture._repr_svg_() == picture.svg


def test_a_picture_of_memory_shows_banks() -> None:
    assert str(triton.show_layout(swizzled((4, 4), 2, 1, 2), itemsize=2)) == MEMORY


def test_large_tiles_are_shown_in_part_and_deep_ones_by_slices() -> None:
    text = triton.show_layout(mma((64, 64), (2, 2)), rows=2, columns=4).text
    assert text.splitlines()[-1] == "(2 of 64 rows, 4 of 64 columns)" and len(text.splitlines()) == 6
    deep = triton.show_layout("2x2x2: register; lane 0.0.1 0.1.0 1.0.0 0.0.0 0.0.0; warp")
    assert [line for line in deep.text.splitlines() if line.startswith("[")] == ["[0, …]", "[1, …]"]
    assert "[1, …]" in deep.svg
    with pytest.raises(LayoutError, match="is no layout"):
        triton.show_layout("blocked")
