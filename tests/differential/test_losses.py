"""Random calls of every loss, and what was wrong once."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import stator
from tests.differential.losses import LOSSES, failures, write


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("backend", "count"), [("aot_eager", 10), ("inductor", 2)])
def test_random_calls(name: str, backend: str, count: int) -> None:
    found = [*failures(range(count), backend, name)]
    assert not found, "\n".join(found)


def test_calls_are_spoilt_now_and_then() -> None:
    """What eager refuses is among them, and what it computes."""
    refused = 0
    for seed in range(100):
        call = write(random.Random(seed))
        try:
            call.function()(*[operand.build() for operand in call.operands])
        except Exception:
            refused += 1
    assert 10 < refused < 50


@pytest.mark.parametrize("ignore", [-100, 156, 300])
def test_bytes_as_classes(ignore: int) -> None:
    """A number that no byte holds is not the byte that it would wrap around to."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(x, target, ignore_index=ignore, reduction="sum")

    target = torch.tensor([156, 5, 44, 255], dtype=torch.uint8)
    x = torch.randn(4, 300, requires_grad=True)
    expected, found = loss(x, target), stator.compile(loss, options={"strict": True})(x, target)
    torch.testing.assert_close(found, expected)
    mine, theirs = (torch.autograd.grad(value, x)[0] for value in (found, expected))
    torch.testing.assert_close(mine, theirs)
