"""The checkers refuse what breaks the grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stator.loop.expr import const, index, load, masked, op, reduce
from stator.loop.index import Axis
from stator.loop.nest import Buffer, Nest, Program, View
from stator.loop.schedule import schedule
from stator.loop.verify import GrammarError, verify_program, verify_schedule
from stator.targets import typical
from tests.loop.build import Build, get, number, softmax

i, j, k = Axis("i", 4), Axis("j", 3), Axis("k", 2)
source = Buffer("x", "f32", (4, 3), (3, 1))
target = Buffer("y", "f32", (4,), (1,))
x = load("x", i.index * 3 + j, "f32")
good = Nest(target, (i,), (j,), reduce("sum", x), i.index)


def program(*nodes: Nest, outputs: tuple[View, ...] = (View("y", (4,), (1,)),)) -> Program:
    return Program("p", "cpu", (source,), nodes, outputs)


def test_good() -> None:
    verify_program(program(good))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: program(replace(good, reduce_axes=(j, j))), "twice"),
        (lambda: program(replace(good, reduce_axes=())), "without a reduction"),
        (lambda: program(replace(good, value=op("add", reduce("sum", x), x))), "outside of a reduction"),
        (lambda: program(replace(good, value=reduce("sum", load("z", i.index, "f32")))), "unknown buffer z"),
        (lambda: program(replace(good, value=reduce("sum", load("x", i.index * 3 + j + 1, "f32")))), "leaves 0"),
        (lambda: program(replace(good, value=reduce("sum", load("x", i.index + k, "f32")))), "axes"),
        (lambda: program(replace(good, index=i.index + j)), "outer loop"),
        (lambda: program(replace(good, index=i.index + 1)), "leaves 0"),
        (lambda: program(replace(good, value=reduce("argmax", x))), "value is i64"),
        (lambda: program(replace(good, mode="add")), "initialised"),
        (lambda: program(replace(good, buffer=replace(source, size=(4,), stride=(1,)))), "not in mutated"),
        (lambda: program(good, outputs=(View("z", (4,), (1,)),)), "unknown buffer z"),
        (lambda: program(good, outputs=(View("y", (4,), (2,)),)), "leaves its buffer"),
    ],
)
def test_broken_programs(make: Callable[[], Program], message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        verify_program(make())


def test_masked_loads_may_point_anywhere() -> None:
    inside = op("ge", index(i.index), const(1, "i64"))
    value = masked(inside, load("x", i.index - 1, "f32"), number(0.0))
    verify_program(program(Nest(target, (i,), (), value, i.index)))


def test_broken_schedules() -> None:
    b = Build()
    found = schedule(b.program(softmax(b, b.input(4, 8))), typical("cpu"))
    verify_schedule(found)
    kernel = found.kernels[0]
    wrong_role = replace(kernel, params=(replace(kernel.params[0], role="inout"), *kernel.params[1:]))
    wrong_space = replace(kernel, stores=(replace(kernel.stores[0], space="outer"),))
    for wrong, message in ((wrong_role, "not inout"), (wrong_space, "outer space")):
        step = replace(found.steps[0], kernel=wrong)
        with pytest.raises(GrammarError, match=message):
            verify_schedule(replace(found, kernels=(wrong,), steps=(step,)))
    swapped = replace(found.steps[0], args=found.steps[0].args[::-1])
    with pytest.raises(GrammarError, match="before it is written"):
        verify_schedule(replace(found, steps=(swapped,)))


def test_reading_a_buffer_before_it_is_written() -> None:
    b = Build()
    x = b.input(4)
    later = b.new((4,))
    b.pointwise([4], lambda i: op("add", get(later, i), get(x, i)))
    with pytest.raises(GrammarError, match="unknown buffer"):
        verify_program(b.program())


def flipped(rows: int, columns: int, start: int = 0) -> Program:
    """A permuted tensor of (2, n // 4, 2), as rows of other lengths, the last of them first."""
    a, b = Axis("i", rows), Axis("j", columns)
    row = (a.index * -1 + (rows - 1)) * columns + b
    half, count = row // 2, rows * columns // 4
    position = half % count * 4 + row % 2 * 2 + half // count + start
    memory = Buffer("x", "f32", (rows * columns,), (1,))
    out = Buffer("y", "f32", (rows, columns), (columns, 1))
    nest = Nest(out, (a, b), (), load("x", position, "f32"), a.index * columns + b)
    view = View("y", (rows, columns), (columns, 1))
    return Program("p", "cpu", (memory,), (nest,), (view,))


@pytest.mark.parametrize(("rows", "columns"), [(4, 5), (400, 75)])
def test_bounds_that_are_too_wide_are_not_all_that_is_asked(rows: int, columns: int) -> None:
    """A row and its half move together, which bounds do not know."""
    made = flipped(rows, columns)
    (node,) = made.nodes
    assert isinstance(node, Nest) and not node.value.attr[1].within(rows * columns)
    verify_program(made)
    for start in (1, -1):
        with pytest.raises(GrammarError, match="leaves 0"):
            verify_program(flipped(rows, columns, start))
