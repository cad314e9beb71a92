"""Random programs whose state changes between calls: a few of fixed seeds, and that a stale result is seen."""

from __future__ import annotations

import random

import pytest
import torch

import stator
from tests.capture import states


@pytest.mark.parametrize(("backend", "seeds"), [("eager", 60), ("aot_eager", 30), ("inductor", 4)])
def test_random_programs(backend: str, seeds: int) -> None:
    for seed in range(7000, 7000 + seeds):
        program = states.write(random.Random(seed))
        assert not states.wrong(program, backend), f"seed {seed}\n{program}"


def test_a_stale_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a compiler without guards."""

    def stale(module: torch.nn.Module, **_: object) -> object:
        first: list[torch.Tensor] = []
        return lambda y: first[0] if first else first.append(module(y)) or first[0]

    monkeypatch.setattr(stator, "compile", stale)
    steps = ((states.GIVEN[0],), (states.GIVEN[0], "K = 3.0"))
    assert states.wrong(states.Program(("y = y * K",), steps), "eager")
    assert not states.wrong(states.Program(("y = y + 1",), steps), "eager")


def test_every_statement_runs() -> None:
    """What reads and what changes is no text that always raises: each runs in a new world."""
    with states.process_kept():
        for reads in states.READS.values():
            for read in reads:
                states.World(states.Program((read,), ())).call(torch.ones(2, 3))
        for changes in states.CHANGES.values():
            for change in changes:
                assert not states.World(states.Program((), ())).change(change), change
    assert not torch.nn.modules.module._global_forward_hooks
