"""Graphs that fail change nothing: checks come before writes, and what cannot wait is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stator.loop.expr import Expr, const, load, op
from stator.loop.failing import Failure
from stator.loop.index import Axis, Index, indirect
from stator.loop.kernel import Call, Launch, Schedule
from stator.loop.nest import Buffer
from stator.loop.schedule import schedule
from stator.targets import typical
from tests.loop.build import Build, get

N = 64


def gathered(build: Build, table: Buffer, positions: Buffer) -> Buffer:
    """`table[positions]`, which checks them."""
    return build.pointwise((N,), lambda i: load(table.name, indirect(get(positions, i), N), table.dtype))


def written(build: Build, target: Buffer, body: Callable[[Axis], Expr]) -> None:
    build.mutated.append(target.name)
    build.pointwise((N,), body, target.dtype, into=target)


def names(made: Schedule) -> list[set[str]]:
    """What each step writes."""
    found = []
    for step in made.steps:
        if isinstance(step, Call):
            found.append({buffer.name for buffer in step.extern.outputs})
            continue
        assert isinstance(step, Launch)
        stored = {store.buffer for store in step.kernel.stores}
        found.append({p.buffer for param, p in zip(step.kernel.params, step.args, strict=True) if param.name in stored})
    return found


def test_a_write_waits_for_a_check_behind_it() -> None:
    build = Build()
    target, table, positions = build.input(N), build.input(N), build.input(N, dtype="i64")
    written(build, target, lambda i: op("add", get(target, i), const(1.0, "f32")))
    result = gathered(build, table, positions)
    made = schedule(build.program(result), typical("cpu"))
    order = names(made)
    first = next(k for k, step in enumerate(order) if result.name in step)
    last = next(k for k, step in enumerate(order) if target.name in step)
    assert first < last and made.failure == Failure()


def test_what_checks_and_writes_at_once_is_kept() -> None:
    build = Build()
    target, table, positions = build.input(N), build.input(N), build.input(N, dtype="i64")
    build.mutated.append(target.name)
    build.pointwise(
        (N,), lambda i: op("add", load(table.name, indirect(get(positions, i), N), "f32"), get(target, i)), into=target
    )
    made = schedule(build.program(), typical("cpu"))
    assert made.failure.kept == (target.name,) and made.failure.unsure == len(made.steps)


def test_positions_in_range_need_no_care() -> None:
    build = Build()
    target, table = build.input(N), build.input(N)
    build.mutated.append(target.name)
    build.pointwise((N,), lambda i: op("add", get(table, Index.of(N - 1) - i), get(target, i)), into=target)
    assert schedule(build.program(), typical("cpu")).failure == Failure()


@pytest.mark.parametrize("out", [True, False])
def test_an_operator_that_needs_the_written_value_is_undone(out: bool) -> None:
    build = Build()
    target = build.input(N)
    written(build, target, lambda i: op("add", get(target, i), const(1.0, "f32")))
    made = build.extern("aten.unknown", [target], (N,), out=out)
    failure = schedule(build.program(made), typical("cpu")).failure
    assert failure.kept == (target.name,) and failure.unsure == 2


def test_without_writes_nothing_is_asked() -> None:
    build = Build()
    table, positions = build.input(N), build.input(N, dtype="i64")
    assert schedule(build.program(gathered(build, table, positions)), typical("cpu")).failure == Failure()
