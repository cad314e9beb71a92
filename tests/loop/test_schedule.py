"""A schedule computes what its program computes: random programs, and goldens of what must become one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.base.device import Device
from stator.loop import apply, fusion
from stator.loop.deps import analyse
from stator.loop.evaluate import run_program, run_schedule
from stator.loop.expr import Expr, cast, index, op
from stator.loop.index import Axis
from stator.loop.kernel import Launch, Schedule
from stator.loop.nest import Buffer, Nest, Program
from stator.loop.schedule import schedule
from stator.loop.split import prepare
from stator.loop.text import program_text
from stator.loop.verify import verify_program, verify_schedule
from stator.targets import typical
from tests.loop.build import (
    Build,
    close,
    contents,
    extern_sum,
    gelu,
    get,
    layer_norm,
    layer_norm_backward,
    number,
    numbers,
    softmax,
    total,
    transformer,
)
from tests.loop.random_programs import make

CPU = typical("cpu")
EAGER_TO_SPLIT = replace(CPU, min_split=8, cores=2)


def equivalent(program: Program, device: Device = CPU, rounds: bool = True, tolerance: float = 1e-4) -> Schedule:
    """Schedule a program, check the grammar, and compare both on random numbers."""
    verify_program(program)
    result = schedule(program, device, rounds)
    verify_schedule(result)
    inputs = numbers(program)
    before = contents(program, run_program(program, inputs, extern_sum))
    after = contents(program, run_schedule(result, inputs, extern_sum))
    for name, values in before.items():
        assert close(after[name], values, tolerance), f"{name} differs:\n{program_text(program)}\n{result.text()}"
    return result


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_random_programs(seed: int) -> None:
    equivalent(make(seed))


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_random_programs_with_gpu_decisions(seed: int) -> None:
    equivalent(make(seed), typical("cuda"))


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_random_programs_in_tight_limits(seed: int) -> None:
    tight = replace(CPU, max_nodes=40, max_params=4)
    result = equivalent(make(seed), tight)
    assert all(len(kernel.params) <= 8 for kernel in result.kernels)


def test_random_programs_do_fuse() -> None:
    programs = [make(seed) for seed in range(40)]
    launches = sum(isinstance(step, Launch) for p in programs for step in schedule(p, CPU).steps)
    assert launches < 0.75 * sum(len(p.nodes) for p in programs)


# -- goldens ---------------------------------------------------------------------------------------

Golden = Callable[[str, str], None]


def one_kernel(program: Program) -> Schedule:
    result = equivalent(program)
    assert len(result.steps) == 1, result.text()
    return result


def test_layer_norm_is_one_kernel(golden: Golden) -> None:
    b = Build()
    y, mean, rstd = layer_norm(b, b.input(4, 8), b.input(8), b.input(8))
    golden("layer_norm", one_kernel(b.program(y, mean, rstd)).text())


def test_softmax_is_one_kernel(golden: Golden) -> None:
    b = Build()
    golden("softmax", one_kernel(b.program(softmax(b, b.input(2, 3, 4, 5)))).text())


def test_residual_and_norm_are_one_kernel(golden: Golden) -> None:
    """The sum comes as a flat loop, and is stored because others read it."""
    b = Build()
    x, y = b.input(4, 8), b.input(4, 8)
    s = b.pointwise([32], lambda i: op("add", get(flat_view(x), i), get(flat_view(y), i)))
    z, _, _ = layer_norm(b, Buffer(s.name, "f32", (4, 8), (8, 1)), b.input(8), b.input(8))
    golden("residual_norm", one_kernel(b.program(z, s)).text())


def test_gelu_epilogue_chain(golden: Golden) -> None:
    b = Build()
    x, bias, scale = b.input(4, 8), b.input(8), b.input(4)
    product = b.extern("aten.mm", [x], [4, 8])
    biased = b.pointwise([4, 8], lambda i, j: op("add", get(product, i, j), get(bias, j)))
    active = b.pointwise([4, 8], lambda i, j: gelu(get(biased, i, j)))
    result = b.pointwise([4, 8], lambda i, j: op("mul", get(active, i, j), get(scale, i)))
    found = equivalent(b.program(result))
    assert len(found.steps) == 2
    golden("gelu_chain", found.text())


def test_attention_permutes(golden: Golden) -> None:
    """Splitting heads with a bias: three outputs, one kernel, no division in any index."""
    b = Build()
    x, bias = b.input(4, 18), b.input(18)
    qkv = b.extern("aten.mm", [x], [4, 18])
    biased = b.pointwise([4, 18], lambda t, k: op("add", get(qkv, t, k), get(bias, k)))
    parts = [b.pointwise([2, 4, 3], lambda h, t, k, p=p: get(biased, t, h.index * 3 + k + p * 6)) for p in range(3)]
    found = equivalent(b.program(*parts))
    assert "//" not in found.text()
    golden("attention_permutes", found.text())


def test_layer_norm_backward(golden: Golden) -> None:
    """One kernel along rows for dx with both sums, one down columns for both parameters."""
    b = Build()
    dy, x, mean, rstd, weight = b.input(4, 8), b.input(4, 8), b.input(4), b.input(4), b.input(8)
    found = equivalent(b.program(*layer_norm_backward(b, dy, x, mean, rstd, weight)))
    assert len(found.steps) == 2
    golden("layer_norm_backward", found.text())


#: A device whose programs keep a row of a few elements, and sum such rows down columns.
MIXING = replace(EAGER_TO_SPLIT, warp=1, thread_points=1, row_elements=64, row_parts=4, packs=True)


def test_gradients_of_a_norm_and_its_weights_are_one_kernel() -> None:
    """Its sums down columns have a part for each few rows; another kernel adds the parts up."""
    b = Build()
    dy, x, mean, rstd, weight = b.input(12, 8), b.input(12, 8), b.input(12), b.input(12), b.input(8)
    program = b.program(*layer_norm_backward(b, dy, x, mean, rstd, weight))
    found = equivalent(program, MIXING)
    assert len(found.steps) == 2 and found.text().count("sum= ") == 2, found.text()
    assert "x0//4" in found.text(), "three parts of four rows"
    assert "sum= " not in equivalent(program, replace(MIXING, row_elements=7)).text(), "no program keeps a row"
    assert "sum= " not in equivalent(program, replace(MIXING, row_parts=0)).text()


def test_columns_of_what_is_made_of_rows_are_one_kernel_with_it() -> None:
    """The gradient of a bias is a sum of what the norm behind it gives back."""
    b = Build()
    dy, x, mean, rstd, weight = b.input(12, 8), b.input(12, 8), b.input(12), b.input(12), b.input(8)
    dx, *_ = layer_norm_backward(b, dy, x, mean, rstd, weight)
    bias = b.reduction([8], [12], lambda j, i: total(get(dx, i, j)))
    found = equivalent(b.program(dx, bias), MIXING)
    assert len(found.steps) == 2 and found.text().count("sum= ") == 1, found.text()


def test_columns_of_what_nothing_else_reads_along_rows_stay_alone() -> None:
    b = Build()
    x, y = b.input(12, 8), b.input(12, 8)
    rows = b.reduction([12], [8], lambda i, j: total(get(x, i, j)))
    columns = b.reduction([8], [12], lambda j, i: total(get(y, i, j)))
    assert "sum= " not in equivalent(b.program(rows, columns), MIXING).text()


def test_columns_wait_for_what_is_made_of_rows() -> None:
    """The sum of columns is of what an operator makes of the rows' results, so that no kernel could make both."""
    b = Build()
    x, y = b.input(12, 8), b.input(12, 8)
    rows = b.reduction([12], [8], lambda i, j: total(op("mul", get(x, i, j), get(y, i, j))))
    other = b.extern("aten.mm", [rows], [12])
    columns = b.reduction([8], [12], lambda j, i: total(op("mul", get(x, i, j), get(other, i))))
    found = equivalent(b.program(rows, columns), MIXING)
    assert "sum= " not in found.text() and len(found.steps) == 4, found.text()


def test_what_is_widened_lies_in_memory_as_narrow_as_it_was() -> None:
    """Where nobody else sees it; an output stays wide, and so does what an operator reads."""
    b = Build()
    x, y = b.input(6, 4, dtype="bf16"), b.input(4, 6)

    def wide() -> Buffer:
        return b.pointwise([6, 4], lambda i, j: cast(cast(op("mul", get(x, i, j), get(x, i, j)), "bf16"), "f32"))

    hidden, seen, given = wide(), wide(), wide()
    sums = b.reduction([4], [6], lambda j, i: total(op("mul", get(hidden, i, j), get(y, j, i))))
    product = b.extern("aten.mm", [given, y], [6, 6])
    program = b.program(
        seen, product, sums, b.pointwise([6, 4], lambda i, j: op("add", get(hidden, i, j), get(sums, j)))
    )
    made = equivalent(program, replace(MIXING, narrows=True, max_nodes=1))
    assert {made.buffers[buffer.name].dtype for buffer in (seen, given)} == {"f32"}
    assert made.buffers[hidden.name].dtype == "bf16", made.text()
    assert equivalent(program, replace(MIXING, max_nodes=1)).buffers[hidden.name].dtype == "f32"


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_random_programs_with_narrow_buffers(seed: int) -> None:
    equivalent(make(seed), replace(CPU, narrows=True))


def test_small_kernels_of_the_same_loops_are_packed() -> None:
    """Three of the four: the last needs what the first ones make."""
    b = Build()
    inputs = [b.input(6, 4) for _ in range(6)]
    made = [
        b.pointwise([6, 4], lambda i, j, x=x, y=y: op("add", get(x, i, j), get(y, i, j)))
        for x, y in zip(inputs[:3], inputs[3:], strict=True)
    ]
    product = b.extern("aten.mm", made[:2], [6, 4])
    last = b.pointwise([6, 4], lambda i, j: op("mul", get(product, i, j), get(product, i, j)))
    program = b.program(*made, last)
    apart = equivalent(program, replace(MIXING, packs=False))
    found = equivalent(program, replace(MIXING, launch_cost=1.0))
    assert [isinstance(step, Launch) for step in found.steps] == [True, False, True]
    assert len(apart.steps) == 5 and len(found.steps[0].kernel.stores) == 3
    assert len(equivalent(program, replace(MIXING, launch_cost=0.0)).steps) == 5, "what they do takes longer"


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_random_programs_with_rows_and_columns_together(seed: int) -> None:
    equivalent(make(seed), MIXING)


def test_no_fusion_around_an_extern() -> None:
    """a and c share everything, but c needs an extern that needs a."""
    b = Build()
    x = b.input(4, 8)
    a = b.pointwise([4, 8], lambda i, j: op("mul", get(x, i, j), number(2.0)))
    product = b.extern("aten.mm", [a], [4, 8])
    c = b.pointwise([4, 8], lambda i, j: op("add", op("add", get(a, i, j), get(product, i, j)), get(x, i, j)))
    found = equivalent(b.program(c))
    assert [isinstance(step, Launch) for step in found.steps] == [True, False, True]


def test_equal_layers_make_their_kernels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, each form of a group is made into a kernel once."""
    made: list[int] = []
    launch = apply._launch
    monkeypatch.setattr(apply, "_launch", lambda *args: made.append(1) or launch(*args))

    def count(layers: int) -> int:
        made.clear()
        equivalent(transformer(layers, 4, 2, 2))
        return len(made)

    assert count(7) == count(4) > 0


def test_groups_that_read_other_elements_share_a_kernel() -> None:
    """Which element of which buffer is an argument; whether two elements are read or one is not."""
    b = Build()
    seeds, others, x = b.input(8), b.input(8), b.input(4, 4)
    for one, k, two, n in ((seeds, 0, seeds, 5), (seeds, 3, others, 3), (others, 7, seeds, 0), (seeds, 2, seeds, 2)):
        value = [(get(one, k), get(two, n)), x]
        made = b.pointwise(
            [4, 4],
            lambda i, j, value=value: op("add", op("mul", get(value[1], i, j), value[0][0]), value[0][1]),
        )
        x = b.extern("aten.f", [made], [4, 4])
    found = equivalent(b.program(x))
    launches = [step for step in found.steps if isinstance(step, Launch)]
    assert [len(step.args) for step in launches] == [4, 4, 4, 3]
    assert len(found.kernels) == 2


def test_mutation_joins_its_readers_and_stores_last() -> None:
    b = Build()
    p, g = b.input(4, 8), b.input(4, 8)
    b.mutated.append(p.name)
    old = b.pointwise([4, 8], lambda i, j: op("mul", get(p, i, j), number(3.0)))
    b.pointwise([4, 8], lambda i, j: op("sub", get(p, i, j), get(g, i, j)), into=p)
    found = one_kernel(b.program(old))
    assert [s.buffer for s in found.kernels[0].stores] == ["p2", "p0"]
    assert {q.name: q.role for q in found.kernels[0].params} == {"p0": "inout", "p1": "in", "p2": "out"}


def test_mutation_by_own_permuted_value() -> None:
    b = Build()
    p = b.input(4, 4)
    b.mutated.append(p.name)
    b.pointwise([4, 4], lambda i, j: get(p, j, i), into=p)
    assert len(equivalent(b.program()).steps) == 2


@pytest.mark.parametrize("count", [60, 61])
@pytest.mark.parametrize("outer", [(), (3,)])
def test_split_reduction(count: int, outer: tuple[int, ...]) -> None:
    """A whole number of chunks, and a last one that is masked."""
    b = Build()
    x = b.input(*outer, count)
    s = b.reduction(outer, [count], lambda *a: op("add", total(get(x, *a)), number(1.0)))
    program = b.program(s)
    assert len(equivalent(program).steps) == 1, "too short to be worth it"
    assert len(equivalent(program, replace(EAGER_TO_SPLIT, min_row=62)).steps) == 1, "one program is as fast"
    found = equivalent(program, EAGER_TO_SPLIT)
    assert len(found.steps) == 2
    assert ("masked" in found.text()) == (count == 61)


def test_pieces_of_a_reduction_are_some_of_its_first_axis() -> None:
    """So that what is computed along the same axes is in the same kernel."""
    b = Build()
    x, y = b.input(12, 3, 5, 7), b.input(12, 3, 5, 7)
    both = b.pointwise([12, 3, 5, 7], lambda *a: op("mul", get(x, *a), get(y, *a)))
    sums = b.reduction([3], [12, 5, 7], lambda c, n, h, w: total(get(both, n, c, h, w)))
    found = equivalent(b.program(both, sums), replace(EAGER_TO_SPLIT, cores=6))
    assert len(found.steps) == 2 and "//" not in found.text(), found.text()


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_random_programs_with_split_reductions(seed: int) -> None:
    program = make(seed)
    equivalent(prepare(program, EAGER_TO_SPLIT))
    equivalent(program, EAGER_TO_SPLIT)


@pytest.mark.parametrize("count", [60, 61])
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_a_split_variance_reads_its_row_once(count: int, far: float) -> None:
    """Parts about their own mean are one kernel with the parts of the sum, whatever the squares are about."""
    b = Build()
    x = b.input(3, count)
    mean = b.reduction([3], [count], lambda i, j: op("div", total(get(x, i, j)), number(float(count))))

    def squared(i: Axis, j: Axis) -> Expr:
        apart = op("sub", get(x, i, j), op("sub", get(mean, i), number(far)))
        return total(op("mul", apart, apart))

    program = b.program(mean, b.reduction([3], [count], squared))
    online = equivalent(program, replace(EAGER_TO_SPLIT, parts_online=True))
    assert len(online.steps) == 2 and len(equivalent(program, EAGER_TO_SPLIT).steps) == 4


def test_parts_of_one_buffer_are_one_kernel() -> None:
    """A concatenation: three nests that write apart from each other."""
    b = Build()
    sources = [b.input(4, 3) for _ in range(3)]
    whole = b.new((4, 9))
    for k, source in enumerate(sources):
        i, j = Axis("i", 4), Axis("j", 3)
        b.nodes.append(Nest(whole, (i, j), (), get(source, i, j), i.index * 9 + j + 3 * k))
    found = one_kernel(b.program(whole))
    assert len(found.kernels[0].stores) == 3


def _halved(reads_position: bool) -> Program:
    """Sums of six rows, and what is computed of them as two times three, maybe by the first of these positions."""
    b = Build()
    x, bias = b.input(6, 5, 4), b.input(5)
    rows = b.reduction((6, 5), (4,), lambda i, j, k: total(get(x, i, j, k)))

    def reader(i: Axis, j: Axis, k: Axis) -> Expr:
        other = cast(index(i.index), "f32") if reads_position else get(bias, k)
        return op("mul", get(rows, i.index * 3 + j, k), other)

    return b.program(b.pointwise((2, 3, 5), reader))


def test_readers_that_walk_rows_in_two_dims_join_them() -> None:
    """A result of a product with a batch: nothing of the kernel knows of it."""
    (kernel,) = equivalent(_halved(reads_position=False)).kernels
    assert [axis.size for axis in kernel.axes] == [6, 5]


def test_readers_that_need_one_of_the_dims_stay_apart() -> None:
    assert len(equivalent(_halved(reads_position=True)).steps) == 2


def test_overlapping_parts_stay_in_order() -> None:
    b = Build()
    x, y = b.input(4, 6), b.input(4, 6)
    whole = b.new((4, 9))
    i, j = Axis("i", 4), Axis("j", 6)
    b.nodes.append(Nest(whole, (i, j), (), get(x, i, j), i.index * 9 + j))
    b.nodes.append(Nest(whole, (i, j), (), get(y, i, j), i.index * 9 + j + 3))
    assert len(equivalent(b.program(whole)).steps) == 2


def test_one_hot_sum_picks() -> None:
    """Values of `chosen` outside of the range pick nothing."""
    b = Build()
    chosen, x = b.input(8), b.input(8, 6)

    def body(i: Axis, j: Axis) -> Expr:
        hit = op("eq", index(j), cast(op("mul", get(chosen, i), number(4.0)), "i64"))
        return total(op("where", hit, get(x, i, j), number(0.0)))

    found = one_kernel(b.program(b.reduction([8], [6], body)))
    assert found.kernels[0].reduce_axes == ()


def test_plan_prints(golden: Golden) -> None:
    b = Build()
    plan = fusion.decide(analyse(b.program(softmax(b, b.input(2, 5)))), CPU)
    golden("softmax_plan", plan.text())


# -- repeated structure, and order -----------------------------------------------------------------


def test_equal_layers_share_kernels() -> None:
    small, large = (schedule(transformer(layers, 4, 2, 4), CPU) for layers in (3, 6))
    assert len(large.steps) > 1.8 * len(small.steps)
    assert len(large.kernels) == len(small.kernels)
    assert set(large.kernels) == set(small.kernels)


def test_transformer_is_computed_right() -> None:
    equivalent(transformer(2, 4, 2, 4))
    equivalent(transformer(1, 4, 2, 4), EAGER_TO_SPLIT)


def test_order_bounds_memory() -> None:
    """Many large buffers, each summed to a number at the very end: the sums move up, one buffer lives at a time."""
    b = Build()
    x = b.input(64)
    large = [b.extern("aten.mm", [x], [64, 64]) for _ in range(8)]
    small = [b.extern("aten.sum", [one], [4]) for one in large]
    found = equivalent(b.program(*small))
    assert found.memory.arena_bytes == 64 * 64 * 4


def flat_view(buffer: Buffer) -> Buffer:
    return replace(buffer, size=(buffer.numel,), stride=(1,))
