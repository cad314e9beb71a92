"""Plans of conversions, accesses and reductions, executed for every register of every lane of every warp."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.tile.layouts.access import Access, plan_access, plan_matrices, wavefronts
from stator.tile.layouts.bits import apply
from stator.tile.layouts.blocked import blocked
from stator.tile.layouts.conversion import (
    Nothing,
    Registers,
    Shuffles,
    ThroughShared,
    plan_conversion,
    scratch_layout,
)
from stator.tile.layouts.linear import LANES, Layout, LayoutError
from stator.tile.layouts.memory import Shared, padded, plain, swizzled
from stator.tile.layouts.mma import dot_operand, mma
from stator.tile.layouts.reduction import plan_reduction
from tests.tile.layouts.drawn import SHAPES, layouts, memories, pairs

quick = settings(max_examples=80, deadline=None, database=None, derandomize=True)
Held = dict[tuple[int, int, int], int]  # (register, lane, warp) → the number of the element


def held(layout: Layout) -> Held:
    everywhere = itertools.product(range(layout.registers), range(1 << LANES), range(layout.warps))
    return {holder: layout.number(*holder) for holder in everywhere}


def threads(layout: Layout) -> list[tuple[int, int]]:
    return list(itertools.product(range(1 << LANES), range(layout.warps)))


def executed(plan: Nothing | Registers | Shuffles | ThroughShared, source: Layout, target: Layout) -> Held:
    """What a plan puts where, of what the source holds."""
    old = held(source)
    match plan:
        case Nothing():
            return {holder: old[holder] for holder in held(target)}
        case Registers(sources):
            return {(r, lane, w): old[sources[r], lane, w] for r, lane, w in held(target)}
        case Shuffles():
            return shuffled(plan, old, target)
        case ThroughShared(shared, store, load):
            return loaded(load, shared, stored(store, shared, old, source), target)


def shuffled(plan: Shuffles, old: Held, target: Layout) -> Held:
    new: Held = {}
    for lane, warp in threads(target):
        for number, (register, step) in enumerate(plan.rounds):
            source = step ^ apply(plan.lanes, lane) ^ apply(plan.warps, warp)
            value = old[register ^ apply(plan.before, source), source, warp]
            new[number ^ apply(plan.after, lane), lane, warp] = value
    return new


def stored(access: Access, shared: Shared, old: Held, layout: Layout) -> dict[int, int]:
    memory: dict[int, int] = {}
    for lane, warp in threads(layout):
        if lane & access.duplicates.lane or warp & access.duplicates.warp:
            continue
        for vector in access.vectors:
            start = shared.padded(vector.offset ^ access.place(lane, warp))
            assert start % access.width == 0
            for position, registers in enumerate(vector.registers):
                assert start + position not in memory, "two threads store one element"
                memory[start + position] = old[registers[0], lane, warp]
    return memory


def loaded(access: Access, shared: Shared, memory: dict[int, int], layout: Layout) -> Held:
    new: Held = {}
    for lane, warp in threads(layout):
        for vector in access.vectors:
            start = shared.padded(vector.offset ^ access.place(lane, warp))
            for position, registers in enumerate(vector.registers):
                new |= {(register, lane, warp): memory[start + position] for register in registers}
    return new


@quick
@given(pairs(), st.sampled_from([1, 2, 4, 8]))
def test_conversions_bring_each_element_to_each_holder(pair: tuple[Layout, Layout], itemsize: int) -> None:
    source, target = pair
    assert executed(plan_conversion(source, target, itemsize), source, target) == held(target)


@quick
@given(st.sampled_from(SHAPES).flatmap(lambda shape: st.tuples(layouts(shape, 1), layouts(shape, 1), memories(shape))),
       st.sampled_from([1, 2, 4, 8]))  # fmt: skip
def test_what_is_stored_in_one_layout_is_loaded_in_another(drawn: tuple[Layout, Layout, Shared], itemsize: int) -> None:
    source, target, shared = drawn
    store, load = plan_access(source, shared, itemsize), plan_access(target, shared, itemsize)
    for access in (store, load):
        assert access.width * itemsize <= 16 and all(len(vector.registers) == access.width for vector in access.vectors)
        for lane, warp in threads(source):
            added = [vector.offset + access.place(lane, warp) for vector in access.vectors]
            together = [vector.offset ^ access.place(lane, warp) for vector in access.vectors]
            assert not access.fixed or added == together
    memory = stored(store, shared, held(source), source)
    assert len(memory) == len(set(memory.values())) and max(memory) < shared.size
    assert loaded(load, shared, memory, target) == held(target)


ROWS = blocked((64, 64), (1, 8), (4, 8), (4, 1), (1, 0))
COLUMNS = ROWS.transpose((1, 0))
RESULT = mma((64, 64), (2, 2))


def test_the_cheapest_way_is_taken() -> None:
    assert plan_conversion(ROWS, ROWS, 2) == Nothing()
    probabilities = mma((64, 64), (4, 1))  # as in attention: a product's result is the next one's operand
    plan = plan_conversion(probabilities, dot_operand(mma((64, 32), (4, 1)), 0, 64, 2), 2)
    assert isinstance(plan, Nothing | Registers)
    one_warp = blocked((32, 8), (1, 8), (32, 1), (1, 1), (1, 0)), blocked((32, 8), (8, 1), (4, 8), (1, 1), (0, 1))
    assert isinstance(plan_conversion(*one_warp, 4), Shuffles)
    assert isinstance(plan_conversion(ROWS, COLUMNS, 2), ThroughShared)


@pytest.mark.parametrize(
    ("source", "target", "itemsize", "wanted"),
    [
        # (vector of stores and loads, turns of the banks for a vector of each lane)
        (ROWS, RESULT, 2, (4, 2, 2)), (RESULT, ROWS, 2, (4, 2, 2)), (RESULT, ROWS, 4, (4, 4, 4)),
        (ROWS, COLUMNS, 4, (1, 1, 1)), (ROWS, dot_operand(RESULT, 0, 64, 2), 2, (4, 2, 2)),
        (ROWS, dot_operand(RESULT, 1, 64, 2), 2, (4, 2, 2)),
    ],
)  # fmt: skip
def test_scratch_has_vectors_and_no_conflicts(
    source: Layout, target: Layout, itemsize: int, wanted: tuple[int, int, int]
) -> None:
    shared = scratch_layout(source, target, itemsize)
    store, load = plan_access(source, shared, itemsize), plan_access(target, shared, itemsize)
    assert store.width == load.width
    found = store.width, wavefronts(store, shared, itemsize), wavefronts(load, shared, itemsize)
    assert found == wanted


def test_swizzled_rows_are_read_by_ldmatrix_without_conflicts() -> None:
    shared = swizzled((64, 64), 8, 1, 8)
    assert wavefronts(plan_access(ROWS, shared, 2), shared, 2) == 4  # 16 bytes of 32 lanes: four times 128 bytes
    for index in (0, 1):
        plan = plan_matrices(dot_operand(RESULT, index, 64, 2), shared, 2)
        assert plan is not None and plan.transposed == bool(index)
        for first in (0, 8, 16, 24):
            rows = [apply(plan.lane, lane) * 2 // 16 % 8 for lane in range(first, first + 8)]
            assert len(set(rows)) == 8, "rows of a matrix are in different banks"


@pytest.mark.parametrize("shape", [(64, 64), (32, 16), (16, 128)])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ldmatrix_fills_the_registers_of_an_operand(shape: tuple[int, int], index: int, order: tuple[int, int]) -> None:
    """Lane t gets two neighbours of row t // 4 of each matrix; a transposed one, of column t // 4."""
    parent = mma((shape[0], 64), (2, 2)) if index == 0 else mma((64, shape[1]), (2, 2))
    layout = dot_operand(parent, index, shape[1 - index], 2)
    assert layout.shape == shape
    shared = swizzled(shape, 8, 1, min(8, shape[order[0]] // 8), order)
    plan = plan_matrices(layout, shared, 2)
    assert plan is not None and plan.transposed == (order[0] == index)
    found: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for warp, (offset, words) in itertools.product(range(4), plan.groups):
        starts = [offset ^ apply(plan.lane, lane) ^ apply(plan.warp, warp) for lane in range(32)]
        for matrix, registers in enumerate(words):
            rows = starts[8 * matrix : 8 * matrix + 8]
            for lane, half in itertools.product(range(32), (0, 1)):
                line, place = lane // 4, lane % 4 * 2 + half
                row, column = (place, line) if plan.transposed else (line, place)
                found[registers[half], lane, warp] = shared.coordinates(rows[row] + column)
    assert found == {holder: layout.coordinates(*holder) for holder in found}
    assert len(found) == layout.registers * 32 * 4


@pytest.mark.parametrize("start", [(0, 0), (0, 16), (0, 48), (64, 32)])
def test_a_part_lies_where_it_is_in_the_whole(start: tuple[int, int]) -> None:
    shared = swizzled((128, 64), 8, 1, 8)
    layout = dot_operand(RESULT, 0, 16, 2)
    assert layout.shape == (64, 16)
    access, matrices = plan_access(layout, shared, 2, start), plan_matrices(layout, shared, 2, start)
    for lane, warp, vector in itertools.product(range(32), range(4), access.vectors):
        first = vector.offset ^ access.place(lane, warp)
        for place, registers in enumerate(vector.registers):
            wanted = [layout.coordinates(register, lane, warp) for register in registers]
            found = tuple(at - by for at, by in zip(shared.coordinates(first + place), start, strict=True))
            assert [found] * len(registers) == wanted
    whole = plan_matrices(layout, shared, 2)
    assert matrices is not None and whole is not None and matrices.lane == whole.lane
    moved = [(offset ^ shared.offset_of(start), words) for offset, words in whole.groups]
    assert list(matrices.groups) == moved


def test_what_ldmatrix_cannot_do_is_none() -> None:
    operand = dot_operand(RESULT, 0, 64, 2)
    assert plan_matrices(operand, plain((64, 64)), 4) is None
    assert plan_matrices(operand, padded((64, 64), 64, 8), 2) is None
    assert plan_matrices(ROWS, swizzled((64, 64), 8, 1, 8), 2) is None


# ---- reductions


@quick
@given(layouts(), st.data())
def test_reductions_combine_every_element_once(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    if any(base[axis] and any(c for i, c in enumerate(base) if i != axis) for base in layout.bases):
        with pytest.raises(LayoutError, match="go along axis"):
            plan_reduction(layout, axis)
        return
    plan, result = plan_reduction(layout, axis), layout.slice(axis)
    parts: dict[tuple[int, int, int], frozenset[int]] = {}
    for place, group in enumerate(plan.groups):
        for lane, warp in threads(layout):
            elements = [layout.number(register, lane, warp) for register in group]
            assert len(set(elements)) == len(elements)
            parts[place, lane, warp] = frozenset(elements)
    for position, bits in ((1, plan.lanes), (2, plan.warps)):
        for bit in bits:
            found = {}
            for holder, mine in parts.items():
                other = list(holder)
                other[position] ^= bit
                theirs = parts[tuple(other)]  # type: ignore[index]
                assert not mine & theirs, "an element is combined twice"
                found[holder] = mine | theirs
            parts = found
    for (place, lane, warp), elements in parts.items():
        kept = () if result is None else result.coordinates(place, lane, warp)
        wanted = {(*kept[:axis], i, *kept[axis:]) for i in range(layout.shape[axis])}
        assert {layout_coordinates(layout, number) for number in elements} == wanted


def layout_coordinates(layout: Layout, number: int) -> tuple[int, ...]:
    found = []
    for size in reversed(layout.shape):
        number, rest = divmod(number, size)
        found.append(rest)
    return tuple(reversed(found))
