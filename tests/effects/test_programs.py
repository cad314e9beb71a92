"""A few random programs of fixed seeds: effects are made once each, in their order, as in eager."""

from __future__ import annotations

import pytest

from tests.effects.operations import LOG
from tests.effects.programs import ACTIONS, VALUES, compare, fail, generate, observe

SEEDS = range(500, 524)


@pytest.mark.parametrize("seed", SEEDS)
def test_effects_are_those_of_eager(seed: int) -> None:
    compare(seed)
    compare(seed, "aot_eager")
    fail(seed)


def test_programs_have_all_there_is() -> None:
    texts = [str(generate(seed)) for seed in SEEDS]
    seen: set[str] = set()
    for seed in SEEDS:
        observe(generate(seed).function())
        seen.update(name for name, *_ in LOG)
    assert seen == {"note", "told", "heard", "fill", "drawn"}
    assert len({template.partition("(")[0] for template in (*VALUES, *ACTIONS)}) > 15
    assert any("_assert_async" in text for text in texts) and any("[positions]" in text for text in texts)
