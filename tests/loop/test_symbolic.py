"""Programs with symbolic sizes: for any values they are the static programs with these, before and after fusion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.loop.evaluate import run_program, run_schedule
from stator.loop.expr import const, index, op
from stator.loop.extent import less
from stator.loop.index import Axis, Index
from stator.loop.kernel import Launch, Schedule
from stator.loop.resize import program_at, schedule_at
from stator.loop.schedule import schedule
from stator.loop.text import program_text
from stator.loop.verify import verify_program, verify_schedule
from stator.sizes import Symbol, maximum
from stator.targets import typical
from tests.loop.build import Build, at, close, contents, extern_sum, get, layer_norm, numbers, softmax
from tests.loop.random_programs import THREE, TWO, make, make_symbolic

CPU = typical("cpu")
EAGER_TO_SPLIT = replace(CPU, min_split=8, cores=2)
N, M = Symbol("s0", hint=64), Symbol("s1", hint=512)
n, m = N.size, M.size


def values(first: int, second: int) -> dict[Symbol, int]:
    return {TWO: first, THREE: second}


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(["cpu", "split", "cuda"]), st.integers(2, 4), st.integers(2, 5))
def test_random_programs(seed: int, kind: str, first: int, second: int) -> None:
    program = make_symbolic(seed)
    result = schedule(program, EAGER_TO_SPLIT if kind == "split" else typical(kind))
    verify_schedule(result)
    sizes = values(first, second)
    verify_program(program, sizes)
    verify_schedule(result, sizes)
    fixed = program_at(program, sizes)
    inputs = numbers(fixed)
    before = contents(fixed, run_program(program, inputs, extern_sum, sizes))
    after = contents(fixed, run_schedule(result, inputs, extern_sum, sizes))
    for name, wanted in before.items():
        assert close(after[name], wanted, 1e-4), f"{name} differs:\n{program_text(program)}\n{result.text()}"


@pytest.mark.parametrize("seed", range(40))
def test_symbols_stand_for_the_sizes(seed: int) -> None:
    fixed = replace(program_at(make_symbolic(seed), values(2, 3)), numbers=())
    assert program_text(fixed) == program_text(make(seed))


def test_they_fuse_as_static_ones_do() -> None:
    def launches(made: Schedule) -> int:
        return sum(isinstance(step, Launch) for step in made.steps)

    pairs = [(launches(schedule(make_symbolic(s), CPU)), launches(schedule(make(s), CPU))) for s in range(60)]
    assert sum(ours for ours, _ in pairs) <= 1.1 * sum(static for _, static in pairs)


# -- indices ---------------------------------------------------------------------------------------


def test_indices_are_divided_where_bounds_prove_it() -> None:
    x, y, z = Axis("x", n), Axis("y", m), Axis("z", 768)
    position = x.index * (m * 768) + y.index * 768 + z
    assert position.bounds() == (0, n * m * 768 - 1) and position.within(n * m * 768)
    assert position // 768 is x.index * m + y and position % 768 is z.index
    assert position // (m * 768) is x.index and (position // 768) % m is y.index
    joint = Axis("j", n * m).index
    assert (joint // m) * m + joint % m is joint and (joint // m) % n is joint // m
    assert (y.index * 2 + 1) // 2 is y.index
    assert not y.index.within(n)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 40), st.integers(0, 5), st.data())
def test_divisions_are_right_for_all_sizes(a: int, b: int, start: int, step: int, data: st.DataObject) -> None:
    x, y = Axis("x", n), Axis("y", m)
    divisor = data.draw(st.sampled_from([n, m, n * m, m * 2, 3, n + 1]))
    index = x.index * data.draw(st.sampled_from([m, m * 2, 6, n * m])) + y.index * step + start
    sizes = {N: a, M: b}

    def fixed(position: Index) -> Index:
        return position.resized(
            lambda extent: extent if isinstance(extent, int) else extent.substitute(sizes), lambda e: e
        )

    d = divisor if isinstance(divisor, int) else divisor.substitute(sizes)
    assert isinstance(d, int)
    for i in range(a):
        for j in range(b):
            point = {Axis("x", a): i, Axis("y", b): j}
            plain = fixed(index).evaluate(point)
            assert fixed(index // divisor).evaluate(point) == plain // d
            assert fixed(index % divisor).evaluate(point) == plain % d


def test_what_is_not_known_is_not_less() -> None:
    low = Symbol("z", low=0).size
    assert less(0, n) and not less(0, low) and less(-1, low) and not less(n, m) and not less(None, 3)
    assert op("lt", index(Axis("x", n)), index(n)) is const(True, "bool")
    assert op("lt", index(Axis("x", n)), index(m)).op == "lt"


# -- kernels ---------------------------------------------------------------------------------------


def test_kernels_are_canonical_in_their_symbols() -> None:
    """The same softmax over other symbols, and with other hints, is one kernel."""
    b = Build()
    third = Symbol("s2", hint=7).size
    outputs = [softmax(b, b.input(n, m)), softmax(b, b.input(m, third)), softmax(b, b.input(third, n))]
    made = schedule(b.program(*outputs), CPU)
    assert len(made.kernels) == 1 and [s.name for s in made.kernels[0].symbols] == ["n0", "n1"]
    sizes = [step.sizes for step in made.steps if isinstance(step, Launch)]
    assert sorted(map(str, sizes)) == sorted(map(str, [(n, m), (m, third), (third, n)]))


def test_layer_norm_is_one_kernel() -> None:
    b = Build()
    program = b.program(layer_norm(b, b.input(n, 768), b.input(768), b.input(768))[0])
    made = schedule(program, CPU)
    assert len(made.steps) == 1 and "//" not in made.kernels[0].text()


def test_memory_is_placed_for_each_size() -> None:
    b = Build()
    x = b.input(n, m)
    first = b.extern("aten.a", [x], [n, m])
    second = b.extern("aten.b", [first], [n, n])
    third = b.extern("aten.c", [second], [m])
    made = schedule(b.program(b.pointwise([m], lambda i: get(third, i))), CPU)
    assert [block.nbytes for block in made.memory.blocks] == [n * m * 4, n * n * 4, m * 4]
    for sizes in ({N: 2, M: 50}, {N: 100, M: 3}):
        placed = schedule_at(made, sizes)
        verify_schedule(placed)
        assert placed.memory.arena_bytes == sum(
            sorted(-(-4 * k // 64) * 64 for k in (sizes[N] * sizes[M], sizes[N] ** 2))
        )


def test_positions_below_a_symbolic_start_stay_in_the_kernel() -> None:
    """Half of a buffer: where it starts depends on the size, so the kernel is told the size and nothing else."""
    b = Build()
    x = b.input(n * 2)
    made = schedule(b.program(b.pointwise([n], lambda i: get(x, i.index + n))), CPU)
    (step,) = made.steps
    assert isinstance(step, Launch) and step.sizes == (n,) and [p.offset for p in step.args] == [0, 0]


def test_a_buffer_that_may_be_empty() -> None:
    empty = Symbol("e", low=0, hint=4).size
    b = Build()
    x = b.input(empty, m)
    made = schedule(b.program(b.pointwise([empty, m], lambda i, j: get(x, i, j))), CPU)
    (step,) = made.steps
    assert isinstance(step, Launch) and made.symbols
    assert maximum(at(x, 0, 0).const, 0) == 0
