"""Random programs whose calls are recorded: right, and what earlier calls gave stays as it was."""

from __future__ import annotations

import random

import pytest

from tests.differential.__main__ import judge
from tests.differential.programs import generate
from tests.recording.conftest import Machine
from tests.recording.programs import Count


@pytest.mark.parametrize("seed", range(31_000, 31_024))
@pytest.mark.filterwarnings("ignore")  # eager's own, and steps that cannot be recorded
def test_random_program(seed: int, machine: Machine) -> None:
    program = generate(random.Random(seed), device=machine.device)
    verdict, why = judge(program, "recorded")
    assert verdict in ("right", "refused"), f"{why}\n{program}"


@pytest.mark.filterwarnings("ignore")
def test_most_of_them_are_recorded(machine: Machine, recordings: Count) -> None:
    verdicts = [
        judge(generate(random.Random(seed), device=machine.device), "recorded")[0] for seed in range(31_000, 31_008)
    ]
    assert recordings() >= 2 * verdicts.count("right") > 0
