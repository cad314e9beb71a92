"""What programs of these tests have in common: comparing with eager, keeping what calls gave, training steps."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.recording.conftest import Machine

Count = Callable[[], int]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)


class Kept:
    """What calls gave, with what it has to be for good."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def take(self, found: Any, expected: Any) -> None:
        close(found, expected)
        self.pairs.append((found, copy.deepcopy(detached(expected))))

    def check(self) -> None:
        for found, expected in self.pairs:
            close(detached(found), expected)


def detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return type(value)([detached(item) for item in value]) if isinstance(value, tuple | list) else value


def run(
    machine: Machine, fn: Callable[..., Any], make: Callable[[], Sequence[Any]], calls: int = 6, **arguments: Any
) -> None:
    """Calls with fresh inputs, of which all results are kept; then as many of which none is."""
    compiled = machine.compile(fn, **arguments)
    kept = Kept()
    for _ in range(calls):
        inputs = make()
        kept.take(compiled(*inputs), fn(*inputs))
    kept.check()
    for _ in range(calls):
        inputs = make()
        close(compiled(*inputs), fn(*inputs))
    kept.check()


def mlp(machine: Machine, *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(machine.device)


def twins(machine: Machine, make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Two equal modules."""
    one = make().to(machine.device)
    return one, copy.deepcopy(one)


def steps(model: nn.Module, call: Callable[..., Any], batches: Sequence[Tensor], **facts: Any) -> list[Tensor]:
    """Losses of some training steps."""
    optimizer = facts.get("optimizer", torch.optim.SGD)(model.parameters(), lr=0.05)
    losses = []
    for x in batches:
        optimizer.zero_grad(set_to_none=facts.get("to_none", True))
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


def in_threads(work: Callable[[int], object]) -> None:
    """Run `work` with the numbers 0 to 3, each in a thread; what any of them raises fails the test."""
    wrong: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
