"""Random programs are right whatever layouts lie between their kernels: results have eager's values and strides.

All that lowering makes is put into memory here, so that there is something to lay out.
"""

from __future__ import annotations

import random

import pytest
from torch.fx import Node

from stator.lowering.context import Context
from stator.lowering.value import LazyTensor
from tests.differential.__main__ import judge
from tests.differential.programs import generate
from tests.loop.layouts import forced

SEEDS = range(431_000, 431_030)


@pytest.fixture(autouse=True)
def all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    consider = Context.consider

    def realize(self: Context, node: Node, value: LazyTensor) -> None:
        consider(self, node, value)
        if value.place is None and value.base is None and value.planes is None:
            self.realize(value)

    monkeypatch.setattr(Context, "consider", realize)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")  # eager's own, about what random programs do
def test_any_layouts(seed: int) -> None:
    program = generate(random.Random(seed))
    with forced(seed):
        verdict, why = judge(program)
    assert verdict in ("right", "refused"), f"{why}\n{program}"


@pytest.mark.filterwarnings("ignore")
def test_there_are_some() -> None:
    drawn = 0
    for seed in SEEDS[:8]:
        with forced(seed) as counts:
            judge(generate(random.Random(seed)))
        drawn += sum(counts)
    assert drawn > 8
