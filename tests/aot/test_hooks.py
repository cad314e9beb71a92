"""Hooks on saved tensors are for what a compiled call saves: compiling triggers none, and their exceptions pass."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stator


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w) * torch.exp(x).relu()


@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpointed_calls(early_stop: bool) -> None:
    compiled = stator.compile(block, fullgraph=True, options={"strict": True})
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    want = torch.autograd.grad(block(x, w).square().sum(), (x, w))
    for _ in range(2):  # the first call compiles
        out = checkpoint(compiled, x, w, use_reentrant=False, early_stop=early_stop)
        torch.testing.assert_close(torch.autograd.grad(out.square().sum(), (x, w)), want)


def test_compiling_triggers_no_hooks() -> None:
    seen: list[torch.Tensor] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(value)
        return value

    compiled = stator.compile(block, fullgraph=True, options={"strict": True})
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    counts = []
    for _ in range(2):
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            compiled(x, w)
        assert seen and all(type(value) is torch.Tensor for value in seen)
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_an_exception_of_a_hook_leaves_the_call() -> None:
    compiled = stator.compile(block, fullgraph=True, options={"strict": True})
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    compiled(x, w)
    calls: list[torch.Tensor] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        calls.append(value)
        raise KeyError("stop")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value), pytest.raises(KeyError, match="stop"):
        compiled(x, w)
    assert len(calls) == 1  # eager was not asked to do it again
