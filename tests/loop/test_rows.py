"""Rows that each program of a kernel makes for itself, and those that stay in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.loop.expr import Expr, const, op
from stator.loop.index import Axis
from stator.loop.kernel import Launch, Schedule
from stator.loop.nest import Buffer, Program
from stator.sizes import hint
from stator.targets import typical
from tests.loop.build import Build, get, total
from tests.loop.test_repeat import in_memory
from tests.loop.test_schedule import equivalent

GPU = typical("cuda")


def sizes(x: Buffer) -> tuple[int, ...]:
    return tuple(map(hint, x.size))


def launches(schedule: Schedule) -> int:
    return sum([isinstance(step, Launch) for step in schedule.steps])


def norm(b: Build, x: Buffer) -> Buffer:
    """Rows divided by the root of their mean square."""
    *outer, length = sizes(x)
    squares = b.reduction(outer, [length], lambda *i: total(op("mul", get(x, *i), get(x, *i))))
    size = const(float(length), "f32")

    def scaled(*i: Axis) -> Expr:
        return op("mul", get(x, *i), op("rsqrt", op("add", op("div", get(squares, *i[:-1]), size), const(0.1, "f32"))))

    return b.pointwise(sizes(x), scaled)


def product(b: Build, x: Buffer, count: int) -> Buffer:
    """Dot products of a vector, or of each row, with so many others."""
    *outer, length = sizes(x)
    w = b.input(count, length)
    return b.reduction([*outer, count], [length], lambda *i: total(op("mul", get(x, *i[:-2], i[-1]), get(w, *i[-2:]))))


def mapped(b: Build, x: Buffer, name: str = "exp") -> Buffer:
    return b.pointwise(sizes(x), lambda *i: op(name, get(x, *i)))


def blocks(count: int, width: int = 16) -> tuple[Program, list[Buffer]]:
    """Residual blocks of a norm and two products with a vector, and their norms."""
    b = Build()
    x, rows = b.input(width), []
    for _ in range(count):
        rows.append(norm(b, x))
        inner = product(b, mapped(b, product(b, rows[-1], 2 * width), "tanh"), width)
        x = b.pointwise([width], lambda i, x=x, inner=inner: op("add", get(x, i), get(inner, i)))
    return b.program(x), rows


def test_a_norm_goes_into_the_product_that_reads_it() -> None:
    program, rows = blocks(4)
    found, without = equivalent(program, GPU), equivalent(program, replace(GPU, repeats=False))
    assert (launches(found), launches(without)) == (8, 12)
    assert in_memory(found).isdisjoint(row.name for row in rows) and rows[0].name in in_memory(without)


@pytest.mark.parametrize("outer", [[2], [2, 3]])
def test_of_several_rows_each_program_makes_its_own(outer: list[int]) -> None:
    b = Build()
    program = b.program(product(b, norm(b, b.input(*outer, 20)), 5))
    assert launches(equivalent(program, GPU)) == 1


def test_several_products_make_the_row_each() -> None:
    b = Build()
    row = norm(b, b.input(20))
    program = b.program(*[product(b, row, count) for count in (3, 5, 7)])
    assert launches(equivalent(program, GPU)) == 3 and launches(equivalent(program, replace(GPU, repeats=False))) == 4


def test_a_row_goes_where_what_it_is_made_of_is_kept() -> None:
    """The step before gives two results: what is added up, and its norm."""
    b = Build()
    x = mapped(b, b.input(20))
    program = b.program(x, product(b, norm(b, x), 6))
    assert launches(equivalent(program, GPU)) <= 2


def test_what_else_is_written_to_in_between_is_read_before() -> None:
    """The row is of the old numbers, though the product comes later."""
    b = Build()
    x = b.input(20)
    row = norm(b, x)
    b.pointwise([20], lambda i: const(7.0, "f32"), into=x)
    b.mutated.append(x.name)
    equivalent(b.program(product(b, row, 6)), GPU)


def kept() -> Program:
    b = Build()
    row = norm(b, b.input(20))
    return b.program(row, product(b, row, 6))


def read_by_points() -> Program:
    b = Build()
    row = norm(b, b.input(20))
    return b.program(product(b, row, 6), b.pointwise([4, 20], lambda i, j: op("mul", get(row, j), const(2.0, "f32"))))


def many_programs() -> Program:
    b = Build()
    return b.program(product(b, norm(b, b.input(20)), GPU.programs + 1))


def long_rows() -> Program:
    b = Build()
    return b.program(product(b, norm(b, b.input(GPU.row_points + 1)), 2))


def a_product_of_tiles() -> Program:
    b = Build()
    return b.program(product(b, norm(b, b.input(16, 20)), 16))


def a_part_of_it() -> Program:
    b = Build()
    row = norm(b, b.input(20))
    return b.program(b.reduction([3], [10], lambda i, j: total(op("mul", get(row, j), get(b.inputs[0], j)))))


def other_sums() -> Program:
    b = Build()
    x = b.input(20, 8)
    sums = b.reduction([20], [8], lambda i, j: total(get(x, i, j)))
    return b.program(product(b, sums, 6))


@pytest.mark.parametrize(
    "program", [kept, read_by_points, many_programs, long_rows, a_product_of_tiles, a_part_of_it, other_sums]
)
def test_what_stays_a_kernel(program: Callable[[], Program]) -> None:
    made = program()
    assert equivalent(made, GPU).text() == equivalent(made, replace(GPU, repeats=False)).text()


def chain(seed: int) -> Program:
    """Rows, products with them, sums of rows and writes to inputs, in any order."""
    rng, b = random.Random(seed), Build()
    lengths = (4, 6)
    rows = [b.input(length) for length in lengths] + [b.input(2, 4)]
    for _ in range(rng.randint(2, 7)):
        x = rng.choice(rows[-3:])
        match rng.randrange(6):
            case 0 | 1:
                rows.append(norm(b, x))
            case 2 | 3:
                rows.append(product(b, x, rng.choice(lengths)))
            case 4:
                other = rng.choice([row for row in rows if row.size == x.size])
                rows.append(b.pointwise(sizes(x), lambda *i, x=x, y=other: op("add", get(x, *i), get(y, *i))))
            case 5 if (given_ := rng.choice(b.inputs)).size in [row.size for row in rows] and not b.mutated:
                y = rng.choice([row for row in rows if row.size == given_.size and row is not given_] or [given_])
                b.pointwise(sizes(given_), lambda *i, y=y: op("mul", get(y, *i), const(0.5, "f32")), into=given_)
                b.mutated.append(given_.name)
            case _:
                rows.append(mapped(b, x, "tanh"))
    results = [row for row in rows if row not in b.inputs]
    return b.program(*rng.sample(results, min(len(results), 2)) or [mapped(b, rows[0])])


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_chains(seed: int) -> None:
    equivalent(chain(seed), GPU)
