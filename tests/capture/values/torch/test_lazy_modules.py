"""Lazy modules: the first call makes their parameters and gives them their final class, then they are compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import stator

MAKERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.LazyLinear(4), (2, 3)),
    "convolution": (lambda: nn.LazyConv2d(4, 3), (2, 3, 8, 8)),
    "norm": (nn.LazyBatchNorm1d, (5, 3)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_module_itself(name: str) -> None:
    make, size = MAKERS[name]
    x, module, final = torch.randn(size), make(), make()
    final(x)
    compiled = stator.compile(module, options={"strict": True})
    compiled(x)
    assert type(module) is type(final) and isinstance(compiled, type(final))
    assert type(compiled).__name__ == type(final).__name__
    got, want = compiled.eval()(x), module.eval()(x)
    torch.testing.assert_close(got, want)
    gradients = [torch.autograd.grad(out.square().sum(), list(module.parameters())) for out in (got, want)]
    torch.testing.assert_close(*gradients)


def test_modules_inside_break_once() -> None:
    module = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    compiled, x = stator.compile(module), torch.randn(2, 3)
    with pytest.warns(UserWarning):
        compiled(x)
    torch.testing.assert_close(compiled(x), module(x))
