"""The strategy for blocks of a GPU: its functions are well formed, and do what kernels say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stator.kernel.blocks import BlockPlan, choose
from stator.kernel.ir import Function, Loop, Scratch, Store, walk
from stator.kernel.strategies import blocks
from stator.kernel.text import function_text
from stator.loop.expr import Expr, cast, load, op, reduce
from stator.loop.index import Axis, indirect
from stator.loop.kernel import Kernel, Param, kernel
from stator.loop.kernel import Store as Write
from stator.targets import typical
from stator.targets.cuda import record
from stator.targets.cuda.platform import AMD, NVIDIA
from tests.kernel.programs import checked, compare, compare_program
from tests.loop.build import Build, layer_norm_backward


def made(kernel: Kernel, name: str = "k") -> Function:
    return blocks(choose(kernel, typical("cuda")), name)


@pytest.mark.parametrize("seed", range(200, 260))
def test_random_kernels(seed: int) -> None:
    assert compare(seed, made) > 0


#: A device on which small kernels run as large ones do on others: in many blocks, in tiles, rows in loops.
SMALL = replace(
    typical("cuda"), cores=1, waves=1, block_bytes=16, line_bytes=16, short_axis=0, columns=2, min_columns=1,
    column_points=4, row_points=4, loop_points=2, row_elements=2, near_bytes=0,
)  # fmt: skip


def in_small_blocks(kernel: Kernel, name: str = "k") -> Function:
    return blocks(choose(kernel, SMALL), name)


@pytest.mark.parametrize("seed", range(260, 320))
def test_random_kernels_in_small_blocks(seed: int) -> None:
    """Rows are walked in loops, some of them once for what two loops would reduce."""
    compare(seed, in_small_blocks, SMALL)


#: The same, but that rows are kept, and summed down columns by programs that take some in turn.
MIXING = replace(
    SMALL, row_elements=64, warp=1, thread_points=1, row_parts=4, min_split=8, cores=2, parts_online=True, packs=True
)


@pytest.mark.parametrize("seed", range(320, 360))
def test_random_kernels_of_rows_and_columns(seed: int) -> None:
    compare(seed, lambda kernel, name: blocks(choose(kernel, MIXING), name), MIXING)


@pytest.mark.parametrize(("rows", "length"), [(12, 8), (16, 5)])
def test_rows_are_summed_down_columns_by_the_programs_that_have_them(rows: int, length: int) -> None:
    b = Build()
    dy, x, mean, rstd = b.input(rows, length), b.input(rows, length), b.input(rows), b.input(rows)
    program = b.program(*layer_norm_backward(b, dy, x, mean, rstd, b.input(length)))
    functions: list[Function] = []

    def strategy(kernel: Kernel, name: str) -> Function:
        functions.append(blocks(choose(kernel, MIXING), name))
        return functions[-1]

    compare_program(program, strategy, MIXING)
    text, step = function_text(functions[0]), 4
    assert text.count("add(s") == 2 and f"for x in range({step}*x_{step}, " in text, text


def test_accesses_that_cross_are_moved_in_tiles() -> None:
    """Both rows of lanes are as long as a line of memory, and another axis goes with one that is shorter."""

    def transposed(*size: int) -> str:
        axes = tuple([Axis(f"x{i}", length) for i, length in enumerate(size)])
        *outer, rows, columns = axes
        first = outer[0].index * rows.size * columns.size if outer else Axis("none", 1).index * 0
        given = load("p0", first + rows.index * columns.size + columns, "f32")
        write = Write("p1", first + columns.index * rows.size + rows, given, "outer")
        numel = rows.size * columns.size * (outer[0].size if outer else 1)
        params = (Param("p0", "f32", "in", numel), Param("p1", "f32", "out", numel))
        return function_text(checked(made(kernel(axes, (), (write,), params))))

    text = transposed(300, 200)
    assert "for y in lanes(32, 32*y_32," in text and "for x in lanes(32, 32*x_32," in text, text
    text = transposed(7, 300, 200)
    assert "for z in parallel(7):" in text and "for y in lanes(32, 32*y_32," in text, text
    text = transposed(100, 300, 3)
    assert "for x in lanes(128, 128*x_128, min(128*x_128 + 128, 90000))" in text and "= p0[x]" in text, "no tile of 3"
    text = transposed(5000, 6, 5)
    assert "for z in" not in text and "lanes(8, " in text, text
    assert "for y in lanes(128, 128*y_128, min(128*y_128 + 128, 30000))" in text, text


def pointwise(body: Callable[[Axis], Expr], *params: Param) -> BlockPlan:
    """The plan of a kernel of a long vector."""
    x = Axis("x0", 1 << 24)
    return choose(kernel((x,), (), (Write("p0", x.index, body(x), "outer"),), params), typical("cuda"))


def test_a_thread_takes_fewer_points_where_these_cost_more() -> None:
    """Where each is much work, and where loads of neighbours lie apart, by as much as they do."""
    size = 1 << 24
    out = Param("p0", "bf16", "out", size)

    def given(step: int, shift: int = 0) -> Callable[[Axis], Expr]:
        return lambda x: load("p1", x.index * step // (1 << shift), "bf16")

    def deep(x: Axis) -> Expr:
        return cast(op("lgamma", cast(load("p1", x.index, "bf16"), "f32")), "bf16")

    def points(body: Callable[[Axis], Expr], numel: int = size) -> int:
        plan = pointwise(body, out, Param("p1", "bf16", "in", numel))
        return plan.outer[-1].count // plan.threads

    assert points(given(1)) == 8
    assert points(deep) == points(given(1, 1)) == 4
    assert points(given(2), 2 * size) == 2


def softmax(rows: int, columns: int) -> Kernel:
    x, r = Axis("x0", rows), Axis("r0", columns)
    place, numel = x.index * columns + r, rows * columns
    given = load("p0", place, "f32")
    shifted = op("exp", op("sub", given, reduce("max", given)))
    result = op("div", shifted, reduce("sum", shifted))
    params = (Param("p0", "f32", "in", numel), Param("p1", "f32", "out", numel))
    return kernel((x,), (r,), (Write("p1", place, result, "inner"),), params)


@pytest.mark.parametrize(
    ("read", "written", "points", "threads"),
    [("i8", "f32", 16, 64), ("bool", "f32", 16, 64), ("bf16", "f32", 8, 64), ("f32", "f32", 8, 64),
     ("i8", "f64", 8, 64), ("f32", "bf16", 8, 128), ("i8", "bf16", 16, 64), ("bf16", "bf16", 8, 128),
     ("i8", "i8", 16, 128)],
)  # fmt: skip
def test_a_thread_takes_what_one_access_to_narrow_memory_has(read: str, written: str, points: int, threads: int):
    """But of a wide result not more than twice what it takes of one else; and of any eight."""
    size = 1 << 24
    params = Param("p0", written, "out", size), Param("p1", read, "in", size)
    plan = pointwise(lambda x: cast(load("p1", x.index, read), written), *params)
    assert (plan.outer[-1].count // plan.threads, plan.threads) == (points, threads)


def test_a_row_that_one_block_covers_is_read_once() -> None:
    function = checked(made(softmax(3000, 100)))
    text = function_text(function)
    assert text.count("p0[") == text.count("exp(") == 1, text
    assert {s.numel for s in walk(function.body) if isinstance(s, Scratch)} == {100}
    assert "-> Threads[32]" in text and "for x in lanes(4, 4*x_4, min(4*x_4 + 4, 3000))" in text, text


def test_a_longer_row_is_walked_in_a_loop() -> None:
    function = checked(made(softmax(30, 100_000)))
    lanes = [s.lanes for s in walk(function.body) if isinstance(s, Loop) and s.axis.name == "r"]
    assert lanes == [8192] * 2, "the sum of exponentials is found with the greatest"
    assert not any(isinstance(s, Scratch) for s in walk(function.body))


def along(body: Callable[[Expr], Expr], dtype: str = "bf16", *, kept: bool = False, length: int = 1 << 16) -> list[int]:
    """Points at once and threads of a kernel of long rows, which stores them less the result, if kept."""
    x, r = Axis("x0", 512), Axis("r0", length)
    place = x.index * r.size + r
    given = load("p1", place, dtype)
    total = body(cast(given, "f32") if dtype == "bf16" else given)
    params = [Param("p0", total.dtype, "out", x.size), Param("p1", dtype, "in", x.size * r.size)]
    writes = [Write("p0", x.index, total, "outer")]
    if kept:
        params.append(Param("p2", total.dtype, "out", x.size * r.size))
        writes.append(Write("p2", place, op("sub", cast(given, total.dtype), total), "inner"))
    plan = choose(kernel((x,), (r,), tuple(writes), tuple(params)), typical("cuda"))
    assert plan.outer[-1].count == 1
    return [plan.r, plan.threads]


def test_long_rows_have_threads_by_what_is_done_with_them() -> None:
    def total(x: Expr) -> Expr:
        return reduce("sum", x)

    def exponentials(x: Expr) -> Expr:
        return reduce("sum", op("exp", op("sub", x, reduce("max", x))))

    def variance(x: Expr) -> Expr:
        apart = op("sub", x, reduce("sum", x))
        return reduce("sum", op("mul", apart, apart))

    plain = [4096, 512]
    assert along(total) == [8192, 1024] == along(total, kept=True)
    assert along(total, kept=True, length=16384) == plain, "what is read again is in the cache"
    assert along(total, length=10000) == plain, "a third of 16384 points would be none"
    assert along(lambda x: reduce("argmax", x)) == [8192, 512]
    assert along(exponentials) == [8192, 512] == along(exponentials, kept=True)
    assert along(exponentials, "f64") == plain == along(variance) == along(variance, kept=True)


def test_no_program_has_more_threads_than_any_gpu_takes() -> None:
    x, r = Axis("x0", 512), Axis("r0", 1 << 16)
    params = Param("p0", "f32", "out", x.size), Param("p1", "f32", "in", x.size * r.size)
    total = reduce("sum", load("p1", x.index * r.size + r, "f32"))
    summed = kernel((x,), (r,), (Write("p0", x.index, total, "outer"),), params)
    assert [choose(summed, record.typical(platform=maker)).threads for maker in (NVIDIA, AMD)] == [1024, 1024]


def test_axes_become_one_row_of_points() -> None:
    """What is contiguous is one index, not a sum of quotients and remainders."""
    x, y = Axis("x0", 40), Axis("x1", 640)
    place = x.index * 640 + y
    write = Write("p1", place, op("mul", load("p0", place, "f32"), load("p2", y.index, "f32")), "outer")
    params = (Param("p0", "f32", "in", 25600), Param("p1", "f32", "out", 25600), Param("p2", "f32", "in", 640))
    text = function_text(checked(made(kernel((x, y), (), (write,), params))))
    assert "= p0[x]" in text and "= p2[x%640]" in text and "p1[x] =" in text, text


def test_iterations_that_meet_write_atomically() -> None:
    x = Axis("x0", 50)
    place = indirect(load("p0", x.index, "i64"), 9)
    write = Write("p1", place, load("p2", x.index, "f32"), "outer", "add")
    params = (Param("p0", "i64", "in", 50), Param("p1", "f32", "inout", 9), Param("p2", "f32", "in", 50))
    function = checked(made(kernel((x,), (), (write,), params)))
    (store,) = [s for s in walk(function.body) if isinstance(s, Store)]
    assert store.atomic and "atomic_add(p1[i0], t" in function_text(function)
