"""Forward, backward and what programs do with results, in random orders."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.recording.conftest import Machine
from tests.recording.runs import Run, same

# ---- in any order ----------------------------------------------------------------------------------------------------


def orders(seed: int, count: int) -> Iterator[tuple[str, float]]:
    """What a program does, and a number to choose by."""
    rng = random.Random(seed)
    usual = ["forward", "backward", "clear"]
    things = [*usual, "forward", "backward", "keep", "drop", "clear in place", "hold", "step", "write", "grad"]
    wild = rng.random() < 0.7
    for i in range(count):
        # A while as always, so that there are recordings, and later again.
        yield (usual[i % 3] if i < 12 or not wild or 40 < i < 52 else rng.choice(things)), rng.random()


def play(run: Run, seed: int, count: int) -> None:
    pending: list[tuple[Tensor, Tensor | None]] = []
    held: list[Tensor] = []
    for number, (what, chance) in enumerate(orders(seed, count)):
        at = int(chance * 1000)
        match what:
            case "forward" if len(pending) < 3:
                loss, hidden = run.call(run.batch(number, requires_grad=chance < 0.3))
                pending.append((loss, hidden if number > 12 and chance < 0.5 else None))
                del loss, hidden
            case "backward" if pending:
                loss, hidden = pending.pop(at % len(pending))
                total = loss if hidden is None or chance < 0.25 else loss + hidden.sin().sum()
                keep = number > 12 and at % 4 == 0
                total.backward(retain_graph=keep)
                if keep:
                    pending.append((loss, None))
                run.note(loss, *run.gradients())
                del loss, hidden, total
            case "grad" if pending:
                loss, _ = pending.pop(at % len(pending))
                found = torch.autograd.grad(loss, list(run.module.parameters()))
                run.note(*found)
                held += found[: at % 3]
                del loss, found
            case "keep" if pending and pending[-1][1] is not None:
                held.append(pending[-1][1])
            case "hold":
                held += [gradient for gradient in run.gradients() if gradient is not None][: at % 5]
            case "drop":
                del held[: at % 4]
            case "write" if held:
                held[at % len(held)].detach().mul_(0.5)
            case "clear":
                run.optimizer.zero_grad()
            case "clear in place":
                run.optimizer.zero_grad(set_to_none=False)
            case "step" if not pending:
                run.optimizer.step()
        run.note(*held)


@pytest.mark.parametrize("seed", range(500, 512))
def test_random_orders(seed: int, machine: Machine) -> None:
    same(machine, lambda run: play(run, seed, 90))
