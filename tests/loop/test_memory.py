"""Memory plans: never two live buffers in one place, small, and in place only where elements match."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.base.placement import ALIGNMENT, place
from stator.loop import memory
from stator.loop.expr import op
from stator.loop.footprint import settle
from stator.loop.kernel import Call, MemoryPlan
from stator.loop.nest import Buffer, Extern, View
from stator.loop.schedule import schedule
from stator.loop.verify import GrammarError, verify_memory, verify_schedule
from stator.targets import typical
from tests.loop.build import Build, get, number, transformer


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 50), st.lists(st.integers(0, 30), max_size=3)), min_size=1, max_size=30))
def test_plans_are_valid_and_tight(shape: list[tuple[int, list[int]]]) -> None:
    """Chains of calls with any sizes and any earlier operands."""
    names = [f"b{k}" for k in range(len(shape))]
    buffers = {name: Buffer(name, "f32", (size * 16,), (1,)) for name, (size, _) in zip(names, shape, strict=True)}
    steps = []
    for k, (_, operands) in enumerate(shape):
        views = tuple(View(names[o % k], buffers[names[o % k]].size, (1,)) for o in operands) if k else ()
        steps.append(Call(Extern(f"e{k}", "aten.f", views, (), (buffers[names[k]],), "aten.f.out")))
    outputs = [View(names[-1], buffers[names[-1]].size, (1,))]
    plan = memory.plan(steps, buffers, [], outputs)
    verify_memory(steps, buffers, plan, set(), outputs)
    lives = {name: life for name, life in memory.lifetimes(steps, [names[-1]]).items() if name != names[-1]}
    at_once = [
        sum(buffers[name].nbytes for name, (first, last) in lives.items() if first <= t <= last)
        for t in range(len(steps))
    ]
    assert max(at_once, default=0) <= plan.arena_bytes <= 2 * max(at_once, default=0)
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets.values())


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 20), st.sampled_from([0, 1, 3, 6, 70, 90])), max_size=30))
def test_each_block_lies_as_low_as_larger_ones_let_it(shapes: list[tuple[int, int, int]]) -> None:
    blocks = [(nbytes, first, first + more) for nbytes, first, more in shapes]
    offsets, size = place(blocks)
    sizes = [-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes, _, _ in blocks]
    order = sorted(range(len(blocks)), key=lambda n: (-sizes[n], blocks[n][1:]))
    for i, n in enumerate(order):
        at_once = [m for m in order[:i] if blocks[m][1] <= blocks[n][2] and blocks[n][1] <= blocks[m][2]]
        free = [
            at
            for at in (0, *[offsets[m] + sizes[m] for m in at_once])
            if all(at + sizes[n] <= offsets[m] or offsets[m] + sizes[m] <= at for m in at_once)
        ]
        assert offsets[n] == min(free)
    assert size == max([offset + nbytes for offset, nbytes in zip(offsets, sizes, strict=True)], default=0)


def test_checker_finds_overlap() -> None:
    b = Build()
    x = b.input(4, 8)
    one = b.extern("aten.f", [x], [4, 8])
    two = b.extern("aten.f", [x], [4, 8])
    found = schedule(b.program(b.extern("aten.g", [one, two], [4, 8])), typical("cpu"))
    verify_schedule(found)
    wrong = MemoryPlan(found.memory.arena_bytes, dict.fromkeys(found.memory.offsets, 0), found.memory.allocated)
    with pytest.raises(GrammarError, match="shares bytes"):
        verify_schedule(replace(found, memory=wrong))


def chain(transposed: bool) -> MemoryPlan:
    """extern -> kernel -> extern, where the kernel may or may not overwrite its operand."""
    b = Build()
    one = b.extern("aten.f", [b.input(4, 4)], [4, 4])
    two = b.pointwise([4, 4], lambda i, j: op("mul", get(one, j, i) if transposed else get(one, i, j), number(2.0)))
    return schedule(b.program(b.extern("aten.g", [two], [4, 4])), typical("cpu")).memory


def test_in_place_where_elements_match() -> None:
    plan = chain(transposed=False)
    assert plan.aliases == (("b1", "b0"),)
    assert plan.offsets["b0"] == plan.offsets["b1"]
    assert plan.arena_bytes == 64
    plan = chain(transposed=True)
    assert plan.aliases == ()
    assert plan.arena_bytes == 128


def test_kinds_of_places() -> None:
    b = Build()
    x = b.input(4)
    middle = b.extern("aten.f", [x], [4])
    fresh = b.extern("aten.f", [middle], [4], out=False)
    y = b.pointwise([4], lambda i: get(fresh, i))
    program = b.program(y, x, fresh)
    plan = schedule(program, typical("cpu")).memory
    assert set(plan.offsets) == {middle.name}
    assert plan.allocated == (y.name,)
    assert plan.returned == (fresh.name,)


@pytest.mark.parametrize("fresh", [True, False])
def test_memory_that_an_operator_has_made(fresh: bool) -> None:
    """A kernel writes over it where nobody else has it and it is no result; what does so is not in the arena."""
    b = Build()
    x = b.input(4, 64)
    made, kept = [b.extern("aten.f", [x], [4, 64], out=False, fresh=fresh) for _ in range(2)]
    one = b.pointwise([4, 64], lambda i, j: op("exp", get(made, i, j)))
    folded = b.extern("aten.g", [one], [4, 64])
    two = b.pointwise([4, 64], lambda i, j: op("mul", get(one, i, j), get(folded, i, j)))
    three = b.pointwise([4, 64], lambda i, j: op("exp", get(kept, i, j)))
    found = schedule(b.program(b.extern("aten.h", [two, three], [4, 64]), kept), typical("cpu"))
    verify_schedule(found)
    plan, over = found.memory, dict(found.memory.aliases)
    if fresh:
        assert over == {one.name: made.name, two.name: one.name}
        assert {one.name, two.name} < set(plan.allocated) and set(plan.offsets) == {folded.name, three.name}
    else:
        assert over == {two.name: one.name} and {one.name, two.name} < set(plan.offsets)
    assert settle(found, None, device=typical("cpu"))[2].peak == 4 * made.nbytes
    with pytest.raises(GrammarError, match="which something reads later"):
        verify_schedule(replace(found, memory=replace(plan, aliases=((one.name, kept.name),))))


def test_arena_is_reused_by_layers() -> None:
    """A forward that saves nothing needs the memory of one layer, however many there are."""

    def arena(layers: int) -> int:
        b = Build()
        x = b.input(64)
        for _ in range(layers):
            up = b.extern("aten.mm", [x], [256])
            active = b.pointwise([256], lambda i, up=up: op("tanh", get(up, i)))
            x = b.extern("aten.mm", [active], [64])
        return schedule(b.program(x), typical("cpu")).memory.arena_bytes

    assert arena(8) == arena(3)


def test_transformer_plan() -> None:
    found = schedule(transformer(3, 8, 2, 4), typical("cpu"))
    verify_schedule(found)
    assert found.memory.arena_bytes < sum(found.buffers[name].nbytes for name in found.memory.offsets) / 1.5
