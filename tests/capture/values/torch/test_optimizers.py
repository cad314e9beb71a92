"""`optimizer.step()` as one graph, over several steps: weights and state are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.capture.programs.runner import Counting

STEPS = 4

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1, foreach=True),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adam_maximize": lambda p: torch.optim.Adam(p, lr=0.1, maximize=True, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "adamw_groups": lambda p: torch.optim.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.01}], lr=0.1),
}


def train(make: Callable[[Any], torch.optim.Optimizer], compiling: Any) -> list[Any]:
    """Some steps; the weights after each and the state at the end."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    optimizer = make(list(model.parameters()))
    step = compiling(optimizer.step)
    data, seen = torch.randn(STEPS, 5, 4), []
    for batch in data:
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        step()
        seen.append([weight.detach().clone() for weight in model.parameters()])
    return [seen, optimizer.state_dict()["state"]]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_eagers(kind: str) -> None:
    backend = Counting()
    expected = train(KINDS[kind], lambda step: step)
    found = train(KINDS[kind], lambda step: stator.compile(step, backend=backend, fullgraph=True))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert 1 <= backend.graphs <= 2, "one graph makes the state, one finds it"


@pytest.mark.parametrize("kind", ["sgd_momentum", "adam", "adamw_foreach"])
def test_steps_through_every_stage(kind: str) -> None:
    expected = train(KINDS[kind], lambda step: step)
    found = train(KINDS[kind], lambda step: stator.compile(step, fullgraph=True))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
