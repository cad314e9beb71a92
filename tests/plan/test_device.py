"""Plans of a GPU: the C core runs them as their Python text does, with no Python between kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from tests.plan.both import watching

pytestmark = pytest.mark.gpu


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(48), nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, x: Tensor) -> Tensor:
        attended = (x @ x.transpose(-1, -2)).softmax(-1) @ x
        inner: Tensor = self.down(F.gelu(self.up(self.norm(attended))))
        return x + F.dropout(inner, 0.2, self.training)


def train(model: nn.Module, x: Tensor) -> list[Tensor]:
    loss = model(x).square().mean()
    return [loss.detach(), *torch.autograd.grad(loss, [*model.parameters()])]


MODELS: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "blocks": lambda: (nn.Sequential(Block(), Block()), [torch.randn(n, 20, 48) for n in (3, 5, 4)]),
    "images": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(1)),
        [torch.randn(n, 3, 14, 14) for n in (2, 6, 3)],
    ),
    "scans": lambda: (
        nn.Sequential(nn.Linear(33, 70), nn.Softmax(-1), nn.LogSoftmax(0)), [torch.randn(n, 33) for n in (9, 4, 7)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_both_ways_give_the_same_bits(name: str) -> None:
    model, inputs = MODELS[name]()
    model = model.cuda()
    with watching() as made:
        compiled = stator.compile(lambda x: train(model, x), options={"strict": True, "cache": False})
        for x in inputs:
            found = compiled(x.cuda())
            assert all(torch.isfinite(t).all() for t in found)
    assert made and all(plan.native is not None for plan in made)


def test_memory_that_begins_anywhere() -> None:
    """A view of a tensor begins where no binary for aligned addresses may be used."""
    memory = torch.randn(4096, device="cuda")
    compiled = stator.compile(lambda x: (x * 2 + 1).tanh().sum() + x, options={"strict": True, "cache": False})
    for start in (0, 1, 2, 3, 5):
        x = memory[start : start + 2048]
        torch.testing.assert_close(compiled(x), (x * 2 + 1).tanh().sum() + x)


def test_no_python_runs_between_kernels() -> None:
    model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
    x = torch.randn(4, 20, 48, device="cuda")
    calls: list[tuple[Any, list[Any]]] = []
    frames: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            frames.append(frame.f_code.co_qualname)

    with watching() as made:
        compiled = stator.compile(lambda x: train(model, x), options={"strict": True, "cache": False})
        compiled(x)
        for graph in made:
            native: Any = graph.native
            graph.native = lambda inputs, native=native: calls.append((native, list(inputs))) or native(inputs)  # type: ignore
        compiled(x)
    assert calls
    for native, inputs in calls:
        sys.setprofile(note)
        try:
            native(inputs)
        finally:
            sys.setprofile(None)
    assert not frames


def test_memory_that_is_not_there() -> None:
    """What eager raises."""

    def outer(x: Tensor) -> Tensor:
        return x[:, None] * x[None]

    x = torch.ones(1 << 20, device="cuda")
    for call in (outer, stator.compile(outer, options={"strict": True, "cache": False})):
        with pytest.raises(torch.OutOfMemoryError):
            call(x)


def test_another_device_may_be_current() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one device")
    x = torch.randn(300, device="cuda:1")
    compiled = stator.compile(lambda x: (x * 2).exp().sum(), options={"strict": True, "cache": False})
    with torch.cuda.device(0):
        torch.testing.assert_close(compiled(x), (x * 2).exp().sum())
