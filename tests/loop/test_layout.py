"""Layouts of buffers between kernels: any of them gives the same numbers, and those that are chosen are worth it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.base.device import Device
from stator.loop import demands, layout
from stator.loop.demands import Demand, Taken
from stator.loop.deps import analyse
from stator.loop.digits import Layout
from stator.loop.evaluate import run_program, run_schedule
from stator.loop.expr import op
from stator.loop.index import Axis
from stator.loop.kernel import Call, Schedule
from stator.loop.nest import Buffer, Extern, Nest, Program
from stator.loop.resize import program_at
from stator.loop.schedule import schedule
from stator.loop.split import prepare
from stator.loop.text import program_text
from stator.loop.verify import verify_program, verify_schedule
from stator.sizes import Symbol
from stator.sizes.strides import Shape
from stator.targets import typical
from tests.loop.build import Build, close, contents, extern_sum, get, number, numbers, total
from tests.loop.layouts import any_layouts, forced
from tests.loop.random_programs import KINDS, THREE, TWO, Maker, make_symbolic

CPU = typical("cpu")


def draw(seed: int) -> Program:
    """A random program, in which buffers are also written in parts."""
    maker = Maker(seed, kinds=(*KINDS, "parts", "pick"))
    return maker.program(maker.random.randint(2, 14))


def equivalent(program: Program, other: Program, sizes: dict[Symbol, int] | None = None) -> None:
    """Both give the same numbers, the other one scheduled too."""
    verify_program(other, sizes)
    made = schedule(other, CPU)
    verify_schedule(made, sizes)
    fixed = program_at(program, sizes) if sizes else program
    inputs = numbers(fixed)
    before = contents(fixed, run_program(program, inputs, extern_sum, sizes))
    for memories in (run_program(other, inputs, extern_sum, sizes), run_schedule(made, inputs, extern_sum, sizes)):
        after = contents(fixed, memories)
        for name, wanted in before.items():
            text = f"{name} differs:\n{program_text(program)}\n{program_text(other)}"
            assert close(after[name], wanted, 1e-4), text


def changed(program: Program, seed: int) -> Program:
    """The program with any layout for each of its free buffers."""
    facts = analyse(prepare(program, CPU))
    return layout.apply(facts.program, any_layouts(facts, CPU, random.Random(seed)))


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_any_layout_gives_the_same(seed: int) -> None:
    program = draw(seed)
    equivalent(program, changed(program, seed))


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(2, 5))
def test_any_layout_of_symbolic_sizes(seed: int, first: int, second: int) -> None:
    program = make_symbolic(seed)
    equivalent(program, changed(program, seed), {TWO: first, THREE: second})


def test_most_random_programs_have_free_buffers() -> None:
    assert sum(any(layout.free(analyse(draw(seed)), CPU)) for seed in range(40)) > 20


def test_forced_layouts_are_told() -> None:
    program = next(p for p in map(draw, range(40)) if layout.free(analyse(p), CPU))
    with forced(1) as counts:
        made = schedule(program, CPU)
    assert counts == [len(made.layouts)] and made.layouts[0].endswith(": drawn")


# -- what is free ----------------------------------------------------------------------------------


def test_what_others_see_is_given() -> None:
    b = Build()
    x = b.input(4, 6)
    read = b.pointwise([4, 6], lambda i, j: get(x, i, j))
    given_back = b.extern("aten.any", [read], [4, 6])
    result = b.pointwise([4, 6], lambda i, j: get(given_back, i, j))
    between = b.pointwise([4, 6], lambda i, j: get(result, i, j))
    b.pointwise([4, 6], lambda i, j: get(between, i, j), into=x)
    b.mutated.append(x.name)
    assert list(layout.free(analyse(b.program(result)), CPU)) == [between.name]


def test_digits_are_what_is_walked_along() -> None:
    """A dim of twelve that is written as one and read as three times four."""
    b = Build()
    x = b.input(2, 12)
    made = b.pointwise([2, 12], lambda i, j: get(x, i, j))
    result = b.pointwise([2, 3, 4], lambda i, j, k: get(made, i, j.index * 4 + k))
    assert layout.free(analyse(b.program(result)), CPU) == {made.name: (2, 3, 4)}


@pytest.mark.parametrize("size", [(0, 4), (1, 6)])
def test_nothing_to_choose(size: Shape) -> None:
    b = Build()
    made = b.pointwise(size, lambda i, j: number(1.0))
    result = b.pointwise(size, lambda i, j: get(made, i, j))
    assert layout.free(analyse(b.program(result)), CPU) == {}


def test_views_of_a_layout() -> None:
    """Part of a tensor, and its transpose; but not its rows as one where these no longer lie side by side."""
    found = Layout((4, 6), (1, 0))
    assert found.view((2, 6), (6, 1), 12) == ((1, 4), 2)
    assert found.view((6, 4), (1, 6)) == ((4, 1), 0)
    assert found.view((3, 8), (8, 1)) is None
    assert Layout((2, 2, 6), (1, 0, 2)).buffer(Buffer("b", "f32", (4, 6), (6, 1))).size == (2, 2, 6)


# -- what is chosen --------------------------------------------------------------------------------


def pairs(n: int) -> Program:
    """Points written one coordinate after the other, and read so; sums along points, of which one kernel is made."""
    b = Build()
    x, y = b.input(n), b.input(n)
    points = b.new([n, 4])
    axis = Axis("i0", n)
    for k, value in enumerate((x, y, x, y)):
        b.nodes.append(Nest(points, (axis,), (), get(value, axis), axis.index * 4 + k))
    results = [b.reduction([], [n], lambda i, k=k: total(get(points, i, k))) for k in range(4)]
    return b.program(*results)


def test_coordinates_lie_apart() -> None:
    program = pairs(1 << 16)
    made = schedule(program, CPU)
    name = program.nodes[0].buffer.name
    lies = f"layout {name}: f32[65536, 4] @ [1, 65536] instead of [65536, 4] @ [4, 1]: "
    assert [line[: len(lies)] for line in made.layouts] == [lies]
    assert made.text().endswith(f"{made.layouts[0]}\n") and made.layouts[0].endswith(" bytes less")
    small = pairs(8)
    equivalent(small, layout.apply(small, {name: Layout((8, 4), (1, 0))}))


def test_small_buffers_stay() -> None:
    assert schedule(pairs(64), CPU).layouts == ()


def test_what_is_contiguous_stays() -> None:
    b = Build()
    x = b.input(512, 512)
    made = b.pointwise([512, 512], lambda i, j: op("exp", get(x, i, j)))
    sums = b.reduction([512], [512], lambda i, j: total(get(made, i, j)))
    columns = b.reduction([512], [512], lambda i, j: total(get(made, j, i)))
    assert schedule(b.program(sums, columns), CPU).layouts == ()


# -- what externs take -----------------------------------------------------------------------------


def around(n: int, shown: bool = False) -> Program:
    """An operator between two kernels that both turn what they read over; its result may be one of the program."""
    b = Build()
    x = b.input(n, n)
    operand = b.pointwise([n, n], lambda i, j: op("exp", get(x, j, i)))
    between = b.extern("test.follows", [operand], [n, n], out=False)
    result = b.pointwise([n, n], lambda i, j: get(between, j, i))
    return b.program(result, between) if shown else b.program(result)


def follows(extern: Extern, device: Device) -> Taken:
    """Takes any dense operand, and its result lies as that does, as those of convolutions do."""
    return Taken((extern.views()[0].stride,))


def lie(made: Schedule) -> list[str]:
    return [line.split(": ")[1] for line in made.layouts]


def test_results_follow_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(demands.DEMANDS, "test.follows", follows)
    made = schedule(around(512), CPU)
    assert lie(made) == ["f32[512, 512] @ [1, 512] instead of [512, 512] @ [512, 1]"] * 2
    (call,) = [step.extern for step in made.steps if isinstance(step, Call)]
    assert call.views()[0].stride == call.outputs[0].stride == (1, 512)
    verify_schedule(made)


def test_a_result_of_the_program_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(demands.DEMANDS, "test.follows", follows)
    assert schedule(around(512, shown=True), CPU).layouts == ()


@pytest.mark.parametrize("demand", [None, lambda extern, device: None])
def test_an_extern_demands_what_it_was_traced_with(monkeypatch: pytest.MonkeyPatch, demand: Demand | None) -> None:
    if demand is not None:
        monkeypatch.setitem(demands.DEMANDS, "test.follows", demand)
    assert schedule(around(512), CPU).layouts == ()
