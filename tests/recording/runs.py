"""Modules in training, with recordings and without: all that comes of a program is the same, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from stator._native import Place
from stator.recording.policy import Policy
from tests.recording.conftest import Machine


class Block(nn.Module):
    """What a transformer has beside attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


class Tower(nn.Module):
    """Gives its loss, and what it is of."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.blocks(x)
        return self.head(hidden.tanh()).square().mean(), hidden


class Run:
    """A module and what calls it, recorded or not, with all that came of it in order."""

    def __init__(self, machine: Machine, module: nn.Module, call: Any) -> None:
        self.machine, self.module, self.call = machine, module.to(machine.device), call
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05)
        self.seen: list[Tensor] = []
        self._last: Tensor | None = None
        self._scalars: list[Tensor] = []

    def batch(self, number: int, rows: int = 64, **facts: Any) -> Tensor:
        """A batch, elsewhere than the last one, so that what moves has moved by the second call.

        Left to the allocator it may lie where the last one was for twenty calls, and be recorded anew at the next one.
        The same goes for the gradient of a loss, hence the scalars.
        """
        torch.manual_seed(number)
        made = self.machine.randn(rows, 16, **facts)
        self._scalars.append(self.machine.randn(()))
        self._last = made
        return made

    def note(self, *tensors: Any) -> None:
        """What they are now."""
        self.seen += [tensor.detach().clone() for tensor in tensors if tensor is not None]

    def gradients(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self.module.parameters()]


Scenario = Callable[[Run], None]


def places(policies: Sequence[Policy]) -> list[Place]:
    """All memory that recordings give out, each once."""
    found = {
        place.storage: place
        for policy in policies
        for variant in policy._by_key.values()
        for recording in variant.recordings
        for place in recording.places
    }
    return list(found.values())


def same(machine: Machine, scenario: Scenario, make: Callable[[], nn.Module] = Tower, **arguments: Any) -> Run:
    """The scenario with recordings, and its bits where nothing is recorded."""
    torch.manual_seed(0)
    module = make()
    twin = copy.deepcopy(module)
    plain = stator.compile(twin, options={"check_speed": "off"}, **arguments)
    run = Run(machine, module, machine.compile(module, options={"check_speed": "off"}, **arguments))
    other = Run(machine, twin, plain)
    scenario(run)
    scenario(other)
    assert len(run.seen) == len(other.seen) > 0
    for found, expected in zip(run.seen, other.seen, strict=True):
        if machine.fake is not None:
            assert torch.equal(found, expected)
        else:
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)
    return run


# ---- loops that programs have ----------------------------------------------------------------------------------------


def clear_first(run: Run) -> None:
    for i in range(7):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        loss.backward()
        run.optimizer.step()
        run.note(loss, *run.gradients())


def clear_last(run: Run) -> None:
    for i in range(7):
        loss, _ = run.call(run.batch(i))
        loss.backward()
        run.note(loss, *run.gradients())
        run.optimizer.step()
        run.optimizer.zero_grad()


def accumulate(run: Run) -> None:
    for i in range(5):
        run.optimizer.zero_grad()
        for k in range(3):
            loss, _ = run.call(run.batch(3 * i + k))
            (loss / 3).backward()
            run.note(loss)
        run.note(*run.gradients())
        run.optimizer.step()
