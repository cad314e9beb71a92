"""Plans come back from bytes as they were, and broken ones are not taken."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stator.loop import tables
from stator.loop.schedule import schedule
from stator.plan import data, from_bytes, ir, module_text, to_bytes, verify
from stator.plan.build import make
from stator.sizes import Symbol
from stator.sizes.real import Bits
from stator.targets import typical
from tests.loop.random_programs import make as random_program
from tests.loop.random_programs import make_symbolic

SEEDS = range(60)


def plans(seeds: range) -> Iterator[ir.Plan]:
    """The plans of random programs, with sizes that are known and with symbols."""
    for seed in seeds:
        with tables.session():
            yield make(schedule(random_program(seed), typical("cpu")))
            yield make(schedule(make_symbolic(seed), typical("cpu")))


def small(*steps: ir.Step, results: tuple[ir.Argument, ...] = (ir.Whole("y"),)) -> ir.Plan:
    """A plan of one input x and one kernel."""
    form = ir.Form("f32", (3,), (1,))
    made = (ir.Allocate("y", form), *steps)
    return ir.Plan("small", "cpu", ("k0",), (ir.Input("x", form),), made, results)


def test_random_plans_come_back_and_print_the_same() -> None:
    seen: set[type] = set()
    for plan in plans(SEEDS):
        verify(plan)
        back = from_bytes(to_bytes(plan))
        assert back == plan and module_text(back) == module_text(plan)
        seen.update(type(step) for step in plan.steps)
    assert seen >= {ir.Allocate, ir.Launch, ir.Invoke, ir.Release}


def test_arguments_of_every_kind_come_back() -> None:
    size = Symbol("s0", 2, None, 4).size * 3 + 1
    arguments = (
        None, True, 7, -0.0, float("inf"), 1e-300, complex(0.5, float("-inf")), "none", ir.Torch("torch.float32"),
        size, Bits(size), (ir.Whole("x"), (1, 2.0)), ir.Turned("x"),
        ir.Reread("x", ir.Form("f32", (2,), (1,)), size, True),
    )  # fmt: skip
    numbers = (ir.Input("s0", None, number=Symbol("s0", 2, None, 4).size),)
    plan = small(ir.Invoke("aten.of.every", arguments, (("key", (None, 1.5)),)))
    plan = replace(plan, inputs=plan.inputs + numbers)
    back = from_bytes(to_bytes(plan))
    assert repr(back) == repr(plan)  # tells -0.0 from 0.0
    assert "-0.0" in module_text(back)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ir.Launch("k1", (ir.Address(ir.Whole("x")),)), "step 1: there is no kernel k1"),
        (ir.Launch("k0", (ir.Address(ir.Whole("z")),)), "step 1: z is used, and is not there"),
        (ir.Allocate("x", ir.Form("f32", (3,), (1,))), "step 1: x is declared twice"),
        (ir.Release(("z",)), "step 1: z is let go"),
        (ir.Release(("y",)), "the results: y is used"),
        (ir.Launch("k0", (), (Symbol("s9", 0, None, 4).size,)), "nothing tells s9"),
        (ir.Allocate("z = exit()", ir.Form("f32", (3,), (1,))), "is no name"),
        (ir.Invoke("aten.neg.default", (ir.Torch("torch.float32, exit()"),), ()), "is no constant of torch"),
    ],
)
def test_broken_plans_are_told(step: ir.Step, message: str) -> None:
    verify(small())
    with pytest.raises(ValueError, match=message):
        from_bytes(to_bytes(small(step)))


@pytest.mark.parametrize(("start", "block"), [(-4, None), (8, None), (0, 0)])
def test_pieces_lie_in_the_arena(start: int, block: int | None) -> None:
    piece = ir.Piece("h", ir.Form("f32", (3,), (1,)), start, block)
    verify(replace(small(), arena=ir.Arena(12, (replace(piece, start=0, block=None),))))
    with pytest.raises(ValueError, match="h does not lie in the arena"):
        verify(replace(small(), arena=ir.Arena(12, (piece,))))


def test_no_declaration_can_be_left_out() -> None:
    dropped = 0
    for plan in plans(range(12)):
        for i, step in enumerate(plan.steps):
            if isinstance(step, ir.Allocate | ir.Reuse) or (isinstance(step, ir.Invoke) and step.results):
                rest = plan.steps[:i] + plan.steps[i + 1 :]
                with pytest.raises(ValueError, match=r"(is|was) not there|not about its"):
                    verify(replace(plan, steps=rest))
                dropped += 1
    assert dropped > 20


@pytest.mark.parametrize(
    "given",
    [b"{}", b"[]", b'{"format":3,"plan":7}', b'{"format":3,"plan":{"Popen":["ls"]}}', b'{"format":0,"plan":{}}'],
)
def test_what_is_no_plan_is_not_read(given: bytes) -> None:
    with pytest.raises(ValueError, match="plan"):
        from_bytes(given)


def test_every_field_has_a_codec() -> None:
    """In the order in which records are made of them."""
    assert {kind: tuple(fields) for kind, fields in data._FIELDS.items()} == {
        kind: fields for kind, fields in ir.FIELDS.items() if kind is not Bits
    }


def test_broken_fields_are_told() -> None:
    """Any value of the JSON in place of any other: read as another plan, or told, never another error."""
    plan = next(plans(range(3, 4)))
    rng = random.Random(0)
    values = (None, True, 3, "k0", [], ["Launch"], {"Whole": ["x"]}, [7, [2]], 0.5)
    told = 0
    for _ in range(400):
        found = json.loads(to_bytes(plan))
        at: Any = found["plan"]
        while (k := rng.randrange(len(at))) is not None and isinstance(at[k], list) and at[k] and rng.random() < 0.9:
            at = at[k]
        at[k] = rng.choice(values)
        try:
            from_bytes(json.dumps(found).encode())
        except ValueError:
            told += 1
    assert told > 200


def test_fields_that_are_missing_are_told() -> None:
    found = json.loads(to_bytes(small()))
    found["plan"].pop()
    with pytest.raises(ValueError, match="no part of a plan"):
        from_bytes(json.dumps(found).encode())
