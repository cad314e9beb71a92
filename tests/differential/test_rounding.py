"""Half types: what eager rounds is rounded where eager rounds it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator

NUMBER = torch.tensor(0.3)

CHAINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arithmetic": lambda x, y: ((x + y) * x - y) / (y.abs() + 1),
    "numbers": lambda x, y: x * 0.1 + y / 3 + 2.7 - (0.3 - x) + 1.3 / (y.abs() + 0.1),
    "powers": lambda x, y: x.abs() ** 1.7 + y**3 + x**2 + y.abs() ** 0.5,
    "numbers as tensors": lambda x, y: (x + NUMBER) * NUMBER - NUMBER / (y.abs() + 1) + NUMBER * x,
    "minimum of a number": lambda x, y: torch.maximum(x, NUMBER) + torch.minimum(NUMBER, y),
    "remainders": lambda x, y: torch.fmod(x, NUMBER) + torch.remainder(y, 0.3) + torch.fmod(x, 0.7),
    "comparisons": lambda x, y: (x < 0.1).to(x.dtype) + x.clamp(-0.3, 0.7) + y.masked_fill(x > 0.3, 0.1),
    "choices": lambda x, y: torch.where(x > y, x * y, y - x),
    "functions": lambda x, y: (x * y).exp() + torch.tanh(x + y) + torch.sigmoid(x) + (y.abs() + 1).log(),
    "sums": lambda x, y: (x * y).sum(-1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_bits(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(61, 67).to(dtype), torch.randn(61, 67).to(dtype)
    function = CHAINS[name]
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    assert torch.equal(compiled(x, y), function(x, y))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scaled_sums(dtype: torch.dtype) -> None:
    """Eager fuses product and sum where it has vectors, so that a few elements may differ; but alpha is rounded."""
    torch.manual_seed(0)
    x, y = torch.randn(61, 67).to(dtype), torch.randn(61, 67).to(dtype)
    compiled = stator.compile(lambda x, y: torch.add(x, y, alpha=0.3), fullgraph=True, options={"strict": True})
    assert (compiled(x, y) != torch.add(x, y, alpha=0.3)).sum() < 0.01 * x.numel()


@pytest.mark.parametrize("offset", [0, 10])
def test_batch_norm_adds_up_about_as_exactly_as_eager(offset: int) -> None:
    """Eager adds in float64: its errors, or those of rounding the results, are the measure."""
    torch.manual_seed(0)
    given = torch.randn(8, 16, 32, 32) + offset, torch.randn(16), torch.randn(16)
    tangent = torch.randn(8, 16, 32, 32)

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, None, None, w, b, True)

    def gradients(function: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> list[Tensor]:
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (t.clone() for t in given)]
        out = function(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, tangent.to(dtype))]

    exact, eager = gradients(norm, torch.float64), gradients(norm, torch.float32)
    ours = gradients(stator.compile(norm, fullgraph=True, options={"strict": True}), torch.float32)
    for wanted, theirs, mine in zip(exact, eager, ours, strict=True):
        scale = wanted.abs().max()
        error, allowed = ((value - wanted).abs().max() / scale for value in (mine, theirs))
        assert error <= max(2 * allowed, 2e-7)


def test_statistics_of_batch_norm_have_the_type_of_eager() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.bfloat16)

    def norm(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)

    compiled = stator.compile(norm, fullgraph=True, options={"strict": True})
    assert [t.dtype for t in compiled(x)] == [t.dtype for t in norm(x)]
