"""A few random programs of fixed seeds: effects are made once each, in their order, as in eager."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import stator
from stator.plan import ir
from stator.plan.order import verify_effects
from tests.effects.operations import LOG
from tests.effects.programs import ACTIONS, OPTIONS, VALUES, compare, fail, generate, observe
from tests.plan.both import watching

SEEDS = range(500, 524)


@pytest.mark.parametrize("seed", SEEDS)
def test_effects_are_those_of_eager(seed: int) -> None:
    compare(seed)
    compare(seed, "aot_eager")
    fail(seed)


def test_plans_bear_no_change_of_effects() -> None:
    """Of the plans of programs: an effect that is lost, doubled, or exchanged with another one is found."""
    counts = {"lost": 0, "doubled": 0, "exchanged": 0}

    def refused(plan: ir.Plan, fault: str, steps: dict[int, ir.Step]) -> None:
        counts[fault] += 1
        with pytest.raises(ValueError, match=r"effect|writes"):
            verify_effects(replace(plan, steps=tuple([steps.get(i, step) for i, step in enumerate(plan.steps)])))

    for seed in SEEDS[:8]:
        with watching() as made:
            observe(stator.compile(generate(seed).function(), options=OPTIONS | {"cache": False}))
        for plan in [linked.plan for linked in made]:
            verify_effects(plan)
            acting = [(i, step) for i, step in enumerate(plan.steps) if isinstance(step, ir.Invoke) and step.effects]
            for i, step in acting:
                refused(plan, "lost", {i: replace(step, effects=())})
                refused(plan, "doubled", {i: replace(step, effects=step.effects * 2)})
            ordered = [(i, step) for i, step in acting if plan.effects[step.effects[0]].kind != "check"]
            for (i, one), (k, other) in pairwise(ordered):
                refused(plan, "exchanged", {i: other, k: one})
    assert min(counts.values()) > 10


def test_programs_have_all_there_is() -> None:
    texts = [str(generate(seed)) for seed in SEEDS]
    seen: set[str] = set()
    for seed in SEEDS:
        observe(generate(seed).function())
        seen.update(name for name, *_ in LOG)
    assert seen == {"note", "told", "heard", "fill", "drawn"}
    assert len({template.partition("(")[0] for template in (*VALUES, *ACTIONS)}) > 15
    assert any("_assert_async" in text for text in texts) and any("[positions]" in text for text in texts)
