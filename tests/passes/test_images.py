"""Images with the channel innermost around convolutions of a GPU: eager's values and strides, and where it pays.

The host stands in for the GPU: PyTorch convolves half types there too, in either order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import stator
from benchmarks.worker import error
from stator.base import log
from stator.base.device import Device
from stator.passes import biases, images
from tests.lowering.test_convolution import Random

OPTIONS: dict[str, object] = {"strict": True, "cache": False}


pytestmark = pytest.mark.usefixtures("innermost")


@pytest.fixture
def laid(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fx.Node]]:
    """The convolutions that are chosen while the test runs."""
    found: list[fx.Node] = []
    decide = images.decide

    def decided(*args: Any) -> set[fx.Node]:
        chosen = decide(*args)
        found.extend(chosen)
        return chosen

    monkeypatch.setattr(images, "decide", decided)
    yield found


class Network(nn.Module):
    """What a residual network is made of, and a result that is an image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.third = nn.Conv2d(8, 8, 5, padding=2, groups=8)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = self.third(x + F.relu(self.second(x)))
        return x, self.head(x.mean((2, 3)))


def results(call: Any, model: nn.Module, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Results and gradients, under autocast to bfloat16 where the model is of float32."""
    x = x.to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.float32):
        outputs = call(x)
    inputs = [x, *model.parameters()]
    wanted = sum([output.double().square().sum() for output in outputs])
    return [*[output.detach() for output in outputs], *torch.autograd.grad(wanted, inputs)]


def convolved_then_biased(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As PyTorch computes it on a GPU: rounded before the bias is added."""
    y = F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    return y if bias is None else y + bias[:, None, None]


def test_a_training_step_lies_so_and_gives_what_eager_gives(laid: list[fx.Node]) -> None:
    model, x = Network(), torch.randn(2, 3, 32, 32)
    found = results(stator.compile(model, fullgraph=True, options=OPTIONS), model, x, torch.float32)
    assert [node.target for node in laid].count(torch.ops.aten.convolution.default) == 3 and len(laid) == 6
    wanted = results(model, model, x, torch.float32)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    exact = results(model.double(), model, x, torch.float64)
    assert error(found, exact) <= 1.5 * error(wanted, exact) + 1e-3


@pytest.mark.parametrize("seed", range(30))
def test_random_networks(seed: int) -> None:
    source = random.Random(seed)
    torch.manual_seed(seed)
    model = Random(source, 3).to(torch.bfloat16)
    x = torch.randn(2, 3, source.randint(6, 16), source.randint(6, 16))
    found = results(stator.compile(model, fullgraph=True, options=OPTIONS), model, x, torch.bfloat16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Conv2d, "_conv_forward", convolved_then_biased)
        wanted = results(model, model, x, torch.bfloat16)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    exact = results(model.double(), model, x, torch.float64)
    assert error(found, exact) <= 2 * error(wanted, exact) + 2e-2


def test_biases_are_added_and_summed_by_kernels() -> None:
    model, x = Network(), torch.randn(2, 3, 32, 32)
    with log.collect() as recorder:
        results(stator.compile(model, fullgraph=True, options=OPTIONS | {"verify": True}), model, x, torch.float32)
    assert recorder.of(log.KERNELS)
    given = images_of(model, x)
    assert given and all(bias is None for bias in given)


def images_of(model: nn.Module, x: Tensor) -> list[object]:
    """The biases of convolutions in what a model compiles to."""
    found: list[object] = []
    split = biases.split

    def watched(graph: fx.Graph, device: Device) -> dict[fx.Node, fx.Node]:
        made = split(graph, device)
        found.extend([node.args[2] for node in graph.nodes if node.target is torch.ops.aten.convolution.default])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(biases, "split", watched)
        results(stator.compile(model, fullgraph=True, options=OPTIONS), model, x, torch.float32)
    return found


def test_whoever_goes_by_strides_gets_images_as_they_were(laid: list[fx.Node]) -> None:
    weight, again = torch.randn(8, 8, 3, 3).bfloat16(), torch.randn(8, 8, 3, 3).bfloat16()

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = F.conv2d(F.relu(F.conv2d(x, weight, padding=1)), again, padding=1)
        return y.as_strided((8, 4), (1, 3), 5), y.view(2, -1), torch.fft.rfft(y.float()), y.view(torch.int16), y

    x = torch.randn(2, 8, 12, 12).bfloat16()
    found, wanted = stator.compile(f, fullgraph=True, options=OPTIONS)(x), f(x)
    assert laid
    for one, other in zip(found, wanted, strict=True):
        assert one.stride() == other.stride()
        if one.dtype is not torch.int16:
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.5)


def test_a_convolution_whose_copies_cost_more_stays(laid: list[fx.Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_COPIED", 1.0)
    weight = torch.randn(8, 8, 3, 3).bfloat16()
    x = torch.randn(2, 8, 12, 12).bfloat16()
    stator.compile(lambda x: F.conv2d(x, weight), fullgraph=True, options=OPTIONS)(x)
    assert not laid


def test_float32_and_images_that_lie_so_already_stay(laid: list[fx.Node]) -> None:
    model, x = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), torch.randn(2, 8, 12, 12)
    with torch.no_grad():
        stator.compile(model, fullgraph=True, options=OPTIONS)(x)
        model = model.to(torch.bfloat16, memory_format=torch.channels_last)
        last = x.to(torch.bfloat16, memory_format=torch.channels_last)
        stator.compile(model, fullgraph=True, options=OPTIONS)(last)
    assert not laid
