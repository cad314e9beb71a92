"""Which axes of a scatter are private, that the order of the others survives scheduling, and what the modes mean."""

from __future__ import annotations

import random

import pytest

from stator.loop import expr as e
from stator.loop.collision import MODES, colliding, private, scatters
from stator.loop.evaluate import run_program, run_schedule
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Nest, Program, View
from stator.loop.schedule import schedule
from stator.loop.verify import GrammarError, verify_program, verify_schedule
from stator.targets import typical

ROWS, COLUMNS, COUNT = 5, 7, 11
i, j, k = Axis("i", COUNT), Axis("j", COLUMNS), Axis("k", 3)
table = Buffer("table", "f32", (ROWS, COLUMNS), (COLUMNS, 1))
places = Buffer("places", "i64", (COUNT,), (1,))
values = Buffer("values", "f32", (COUNT, COLUMNS), (COLUMNS, 1))
out = Buffer("out", "f32", (ROWS, COLUMNS), (COLUMNS, 1))


def loaded(axis: Axis, bound: int) -> Index:
    return e.to_index(e.load("places", axis, "i64"), bound)


def test_what_the_address_tells_is_private() -> None:
    row = loaded(i, ROWS)
    assert private(row * COLUMNS + j) == {j}
    assert private(row + j.index * ROWS) == {j}
    assert private(row * COLUMNS * 3 + j.index * 3 + k) == {j, k}
    assert private(row * (COLUMNS - 1) + j) == set()  # the digits overlap
    assert private(row * COLUMNS - j) == set()
    assert colliding([row * COLUMNS + j, row * 3 + k], (i, j, k)) == {i, j, k}
    assert colliding([row * COLUMNS + j], (i, j)) == {i}
    assert colliding([], (i, j)) == set()


def scatter(mode: str, outer: tuple[Axis, ...]) -> Program:
    """Rows of values into loaded rows of a copy of the table."""
    row, column = Axis("row", ROWS), Axis("column", COLUMNS)
    copy = Nest(
        out, (row, column), (), e.load("table", row.index * COLUMNS + column, "f32"), row.index * COLUMNS + column
    )
    value = e.op("mul", e.load("values", i.index * COLUMNS + j, "f32"), e.const(0.5, "f32"))
    write = Nest(out, outer, (), value, loaded(i, ROWS) * COLUMNS + j, mode)
    return Program("scatter", "cpu", (table, places, values), (copy, write), (View("out", out.size, out.stride),))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("store", "sum")])
@pytest.mark.parametrize("outer", [(i, j), (j, i)], ids=["rows", "columns"])
def test_order_is_that_of_the_loops(mode: str, outer: tuple[Axis, ...]) -> None:
    program = scatter(mode, outer)
    assert scatters(program.nodes[1])  # type: ignore[arg-type]
    verify_program(program)
    made = schedule(program, typical("cpu"))
    verify_schedule(made)
    random.seed(len(mode))
    at = [random.randrange(ROWS) for _ in range(COUNT)]
    held = [random.gauss(0, 3) for _ in range(ROWS * COLUMNS)]
    given = [random.gauss(0, 3) for _ in range(COUNT * COLUMNS)]
    inputs = {"table": held, "places": at, "values": given}
    results = [run(made_, inputs)["out"] for run, made_ in ((run_program, program), (run_schedule, made))]
    straight, scheduled = ([memory.read(n) for n in range(ROWS * COLUMNS)] for memory in results)
    assert straight == scheduled
    if mode == "put":
        last = {row: n for n, row in enumerate(at)}
        for row in range(ROWS):
            for column in range(COLUMNS):
                wanted = given[last[row] * COLUMNS + column] * 0.5 if row in last else held[row * COLUMNS + column]
                assert straight[row * COLUMNS + column] == pytest.approx(wanted, rel=1e-6)


def test_what_is_combined_with_must_be_there() -> None:
    program = scatter("add", (i, j))
    alone = Program("alone", "cpu", program.inputs, program.nodes[1:], program.outputs)
    with pytest.raises(GrammarError, match="nothing initialised"):
        verify_program(alone)
