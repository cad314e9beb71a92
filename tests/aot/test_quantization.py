"""Training for quantization: rounding, its gradients, and observers that are one operator, in one graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization as q

import stator

SCALES, ZEROS = torch.tensor([0.1, 0.05, 0.3]), torch.tensor([0, 3, -2], dtype=torch.int32)

OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -10, 12),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], ZEROS[:1], -10, 12),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -10, 12),
    "between": lambda x: torch.fake_quantize_per_tensor_affine(x.sin() * 2, 0.1, 3, -10, 12).exp() + x,
}

LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "contiguous": lambda n: torch.randn(n, 3, 4, 5),
    "channels last": lambda n: torch.randn(n, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda n: torch.randn(n, 3, 5, 4).mT,
    "sliced": lambda n: torch.randn(n, 6, 4, 5)[:, ::2],
}


def differentiated(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    weights = torch.empty_like(y).copy_(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape))
    (gradient,) = torch.autograd.grad((y * weights).sum(), x)
    return y.detach(), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["numbers", "tensors", "channels"])
def test_operators_are_eagers(name: str, layout: str, dtype: torch.dtype) -> None:
    fast = stator.compile(OPERATORS[name], fullgraph=True)
    for size in (2, 3, 5):
        x = LAYOUTS[layout](size).to(dtype)
        expected, got = differentiated(OPERATORS[name], x), differentiated(fast, x)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, check_stride=True)


def test_operators_between_others() -> None:
    fast = stator.compile(OPERATORS["between"], fullgraph=True)
    x = torch.randn(4, 3)
    torch.testing.assert_close(differentiated(fast, x), differentiated(OPERATORS["between"], x), rtol=1e-5, atol=1e-5)


def test_learnable_scales() -> None:
    def learn(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        y = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -8, 7, 0.5)
        return (y * x).sum()

    fast = stator.compile(learn, fullgraph=True)
    for size in (4, 7):
        given = [torch.randn(size, 3), torch.tensor([0.2]), torch.tensor([1.0])]
        found = []
        for function in (learn, fast):
            leaves = [t.clone().requires_grad_() for t in given]
            found.append([*torch.autograd.grad(function(*leaves), leaves)])
        torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


class Net(nn.Module):
    """A convolution and a product as `torch.ao.quantization` prepares them."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        average = q.MovingAverageMinMaxObserver
        self.conv, self.linear = nn.Conv2d(2, 3, 3), nn.Linear(12, 4)
        self.weight, self.other = weights(), weights()
        self.active = q.FusedMovingAvgObsFakeQuantize(average, quant_min=0, quant_max=255, dtype=torch.quint8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.active(torch.conv2d(x, self.weight(self.conv.weight), self.conv.bias).relu())
        return torch.nn.functional.linear(x.flatten(1), self.other(self.linear.weight), self.linear.bias)


def whole() -> nn.Module:
    return q.FusedMovingAvgObsFakeQuantize(
        q.MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
        qscheme=torch.per_tensor_symmetric,
    )  # fmt: skip


def each_channel() -> nn.Module:
    return q.FusedMovingAvgObsFakeQuantize(
        q.MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
    )  # fmt: skip


@pytest.mark.parametrize("weights", [whole, each_channel])
def test_a_network_with_fused_observers_trains_in_one_graph(weights: Callable[[], nn.Module]) -> None:
    model = Net(weights)
    if weights is each_channel:
        model(torch.randn(2, 2, 4, 4))
    eager, other = copy.deepcopy(model), copy.deepcopy(model)
    fast = stator.compile(other, fullgraph=True)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (eager, other)]
    for number, change in enumerate((None, None, q.disable_observer, q.disable_fake_quant, q.enable_observer, None)):
        x = torch.randn(2 + number % 3, 2, 4, 4) * (1 + number)
        losses = []
        for model, function, optimizer in zip((eager, other), (eager, fast), optimizers, strict=True):
            if change is not None:
                model.apply(change)
            optimizer.zero_grad()
            loss = function(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(other.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-4)
        versions = [[buffer._version for buffer in model.buffers()] for model in (eager, other)]
        assert versions[0] == versions[1]


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_the_first_call_of_an_observer_of_channels_gives_its_statistics_their_size() -> None:
    eager = each_channel()
    other = copy.deepcopy(eager)
    fast = stator.compile(other)
    for _ in range(3):
        x = torch.randn(3, 5)
        torch.testing.assert_close(fast(x), eager(x), rtol=0, atol=0)
        torch.testing.assert_close(other.state_dict(), eager.state_dict(), rtol=0, atol=0)
    assert not stator.explain(other)(x).breaks
