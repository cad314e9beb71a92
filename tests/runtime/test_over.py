"""Kernels that write over what an operator of PyTorch has made: eager's values, and nobody's memory but ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.loop import footprint
from stator.loop.kernel import Schedule

OPTIONS: dict[str, object] = {"strict": True, "cache": False, "verify": True}
_KEPT = torch.randn(4, 8, 16, 16)


@torch.library.custom_op("over::held", mutates_args=())
def held(x: Tensor) -> Tensor:
    """An operator of the program that gives out what it keeps, against its promise."""
    return _KEPT


@held.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(_KEPT)


def convolved(x: Tensor, w: Tensor) -> Tensor:
    """A block whose convolutions' results are read by one kernel, two, and by the caller."""
    first = F.conv2d(x, w, padding=1)
    second = F.conv2d(torch.tanh(first) * 2, w, padding=1)
    third = F.conv2d(second.sigmoid() + second, w, padding=1)
    return F.conv2d(third.cos(), w, padding=1) + third


def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    first = F.conv2d(x, w, padding=1)
    return first, F.conv2d(torch.tanh(first), w, padding=1).relu()


def turned(x: Tensor, w: Tensor) -> Tensor:
    """What is written elsewhere than it is read does not write over it."""
    first = F.conv2d(x, w, padding=1)
    return F.conv2d(torch.tanh(first).flip(3), w, padding=1)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("program", [convolved, returned, turned])
@pytest.mark.parametrize("gradients", [False, True])
def test_values(program: Callable[..., Any], layout: torch.memory_format, gradients: bool) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(4, 8, 16, 16).to(memory_format=layout), torch.randn(8, 8, 3, 3) / 8
    compiled = stator.compile(program, fullgraph=True, options=OPTIONS)
    for _ in range(2):
        results = []
        for call in (program, compiled):
            given = [tensor.clone().requires_grad_(gradients) for tensor in (x, w)]
            out = call(*given)
            values = [out] if isinstance(out, Tensor) else list(out)
            grads = torch.autograd.grad(sum((v * v).sum() for v in values), given) if gradients else ()
            results.append([*values, *grads])
        for got, want in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.fixture
def schedules(monkeypatch: pytest.MonkeyPatch) -> list[Schedule]:
    """Those of forward graphs that are compiled while the test runs."""
    found: list[Schedule] = []

    def settled(forward: Schedule, *given: Any, **named: Any) -> Any:
        found.append(forward)
        return footprint.settle(forward, *given, **named)

    monkeypatch.setattr("stator.pipeline.settle", settled)
    return found


def test_what_is_taken_over(schedules: list[Schedule]) -> None:
    x, w = torch.randn(4, 8, 16, 16), torch.randn(8, 8, 3, 3)
    with torch.no_grad():
        for program, count in ((convolved, 2), (returned, 0), (turned, 0)):
            stator.compile(program, fullgraph=True, options=OPTIONS)(x, w)
            memory = schedules[-1].memory
            assert len([name for name, donor in memory.aliases if donor in memory.returned]) == count


def test_memory_of_others(schedules: list[Schedule]) -> None:
    before = _KEPT.clone()
    compiled: Any = stator.compile(lambda x: torch.ops.over.held(x).exp() @ x, fullgraph=True, options=OPTIONS)
    x = torch.randn(4, 8, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), before.exp() @ x)
        assert not schedules[-1].memory.aliases and torch.equal(_KEPT, before)
