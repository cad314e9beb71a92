"""Plans whose own memory is all in the arena: they say the same and run to the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from stator import plan as plans
from stator.loop import tables
from stator.loop.footprint import apart
from stator.loop.schedule import schedule
from stator.plan import ir
from stator.plan.build import make
from stator.plan.gather import gather
from stator.plan.places import escapes
from stator.targets import typical
from tests.loop.random_programs import make as random_program
from tests.loop.random_programs import make_symbolic
from tests.plan.programs import EXECUTORS, artifact, mlp

FORM = ir.Form("f32", (4, 4), (4, 1))


def own(plan: ir.Plan) -> list[str]:
    """The allocations that no result lies in."""
    kept = {step.name for step in escapes(plan).places}
    return [step.name for step in plan.steps if isinstance(step, ir.Allocate) and step.name not in kept]


def acting(plan: ir.Plan) -> list[ir.Step]:
    return [step for step in plan.steps if isinstance(step, ir.Launch | ir.Invoke)]


@pytest.mark.parametrize("seed", range(30))
def test_random_plans_say_the_same(seed: int) -> None:
    with tables.session():
        made = schedule(random_program(seed), typical("cpu"))
    whole = make(replace(made, memory=apart(made.memory, 0)))
    found = gather(whole)
    plans.verify(found)
    assert not own(found) and gather(found) == found
    assert acting(found) == acting(whole) and found.results == whole.results and found.inputs == whole.inputs
    assert escapes(found).places == escapes(whole).places
    assert found.arena.nbytes <= 1.1 * made.memory.arena_bytes + 64, "as small as one that is planned from the start"


def test_memory_of_symbolic_sizes_stays_as_it_is() -> None:
    with tables.session():
        made = schedule(make_symbolic(3), typical("cpu"))
    whole = make(made)
    assert whole.arena.blocks and gather(whole) == whole


@pytest.mark.parametrize("how", sorted(EXECUTORS))
def test_results_are_the_same(how: str) -> None:
    program, inputs, _ = mlp()
    made = schedule(program, typical("cpu"))
    built = artifact(replace(made, memory=apart(made.memory, 0)))
    gathered = replace(built, plan=gather(built.plan))
    assert own(built.plan) and not own(gathered.plan)
    plain, call = EXECUTORS[how](built), EXECUTORS[how](gathered)
    for _ in range(3):
        found, expected = call(list(inputs)), plain(list(inputs))
        assert all(torch.equal(a, b) for a, b in zip(found[:3], expected[:3], strict=True))


def launch(written: str, *read: str) -> ir.Launch:
    addresses = [ir.Address(ir.Whole(written), written=True), *[ir.Address(ir.Whole(name)) for name in read]]
    return ir.Launch("k", tuple(addresses))


def test_what_takes_over_memory_lies_where_that_did() -> None:
    """And what lives at other times lies there, too; steps are counted anew where a failure speaks of them."""
    steps = (
        ir.Allocate("a", FORM),
        launch("a", "x"),
        ir.Reuse("b", "a", None),
        launch("b", "x"),
        ir.Allocate("c", FORM),
        launch("c", "b"),
        ir.Release(("b", "x")),
        ir.Allocate("d", FORM),
        launch("d", "c"),
        ir.Release(("c",)),
        ir.Allocate("y", FORM),
        launch("y", "d"),
    )
    whole = ir.Plan(
        *("small", "cpu", ("k",), (ir.Input("x", FORM),), steps, (ir.Whole("y"),)),
        failure=ir.Failure(1, (), 5, 8),
    )
    plans.verify(whole)
    found = gather(whole)
    plans.verify(found)
    assert found.steps == (*(steps[1], steps[3], steps[5], ir.Release(("x",)), steps[8], steps[10], steps[11]),)
    starts = {piece.name: piece.start for piece in found.arena.pieces}
    assert starts["a"] == starts["b"] == starts["d"] != starts["c"] and found.arena.nbytes == 128
    assert found.failure == ir.Failure(0, (), 2, 4)


def test_results_and_what_operators_make_stay_where_they_are() -> None:
    made = ir.Result(0, "m", (4, 4), (4, 1))
    steps = (
        ir.Allocate("y", FORM),
        launch("y", "x"),
        ir.Invoke("aten.mm.default", (ir.Whole("x"), ir.Whole("y")), (), (made,)),
        ir.Reuse("n", "m", None),
        launch("n", "y"),
    )
    whole = ir.Plan("small", "cpu", ("k",), (ir.Input("x", FORM),), steps, (ir.Whole("y"), ir.Whole("n")))
    plans.verify(whole)
    assert gather(whole) == whole
