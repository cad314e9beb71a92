"""Convolutions with windows of one pixel as products: which, and that results and gradients are eager's.

The host stands in for the GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import stator
from benchmarks.worker import error
from stator.base.device import Device
from stator.loop.kernel import Call, Launch
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.passes import points
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from stator.targets.cpu import record
from tests.cases.graphs import trace
from tests.passes.test_images import results

OPTIONS: dict[str, object] = {"strict": True, "cache": False, "verify": True}
aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("innermost")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[Any]]:
    """How often operators are called in graphs of forward and backward that are compiled while the test runs."""
    found: Counter[Any] = Counter()
    multiply = points.multiply

    def watched(graph: fx.Graph, device: Device) -> dict[fx.Node, fx.Node]:
        gone = multiply(graph, device)
        found.update([node.target for node in graph.nodes])
        return gone

    monkeypatch.setattr("stator.passes.points.multiply", watched)
    yield found


class Block(nn.Module):
    """A block of a residual network behind a stem, with squeezed channels, and a step over pixels."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 1, bias=bias)
        self.norm, self.deep = nn.BatchNorm2d(32), nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.squeeze, self.excite = nn.Conv2d(32, 6, 1), nn.Conv2d(6, 32, 1)
        self.narrow, self.last = nn.Conv2d(32, 16, 1, bias=bias), nn.Conv2d(16, 8, 1, stride=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        y = self.deep(F.relu(self.norm(self.wide(x))))
        y = y * self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))).sigmoid()
        y = self.narrow(y)
        return y, self.last(y + x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_values_and_strides(bias: bool, training: bool, calls: Counter[Any]) -> None:
    torch.manual_seed(0)
    model, x = Block(bias).train(training), torch.randn(2, 3, 12, 12)
    found = results(stator.compile(model, fullgraph=True, options=OPTIONS), model, x, torch.float32)
    assert calls[aten.mm.default] == 4 * 3 and calls[aten.convolution.default] == 3  # wide, narrow, squeeze, excite
    assert calls[aten.convolution_backward.default] == 3
    wanted = results(model, model, x, torch.float32)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    exact = results(model.double(), model, x, torch.float64)
    assert error(found, exact) <= 1.5 * error(wanted, exact) + 1e-3


def test_some_gradients_alone(calls: Counter[Any]) -> None:
    torch.manual_seed(0)
    w = torch.randn(16, 8, 1, 1).bfloat16()
    x = torch.randn(2, 8, 6, 6).bfloat16().to(memory_format=torch.channels_last)

    def f(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w).square()

    compiled = stator.compile(f, fullgraph=True, options=OPTIONS)
    for wanted in ((True, False), (False, True)):
        given = [t.clone().requires_grad_(needs) for t, needs in zip((x, w), wanted, strict=True)]
        needing = [t for t in given if t.requires_grad]
        (one,), (other,) = [torch.autograd.grad(call(*given).sum(), needing) for call in (compiled, f)]
        if record.onednn_multiplies_halves():  # eager's kernel beside it gives dims of one element other strides
            assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.5)
    assert calls[aten.convolution_backward.default] == calls[aten.convolution.default] == 0


@pytest.mark.parametrize(
    ("size", "channels", "options"),
    [
        ((2, 8, 6, 6), 16, {"stride": 2}),
        ((2, 8, 6, 6), 16, {"padding": 1}),
        ((2, 16, 6, 6), 16, {"groups": 2}),
        ((2, 9, 6, 6), 16, {}),
        ((2, 8, 6, 6), 12, {}),
        ((0, 8, 6, 6), 16, {}),
    ],
)
def test_others_stay(size: tuple[int, ...], channels: int, options: dict[str, int], calls: Counter[Any]) -> None:
    x = torch.randn(size).bfloat16().to(memory_format=torch.channels_last)
    w = torch.randn(channels, size[1] // options.get("groups", 1), 1, 1).bfloat16()
    compiled = stator.compile(lambda x, w: F.conv2d(x, w, **options), fullgraph=True, options=OPTIONS)
    torch.testing.assert_close(compiled(x, w), F.conv2d(x, w, **options), rtol=0.05, atol=0.5)
    assert calls[aten.convolution.default] == 1 and calls[aten.mm.default] == 0


def test_under_deterministic_algorithms(calls: Counter[Any]) -> None:
    x = torch.randn(2, 8, 6, 6).bfloat16().to(memory_format=torch.channels_last)
    w = torch.randn(16, 8, 1, 1).bfloat16()
    torch.use_deterministic_algorithms(True)
    try:
        stator.compile(F.conv2d, fullgraph=True, options=OPTIONS)(x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    assert calls[aten.mm.default] == 0


def residual(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """Blocks whose results are read by the next product, and by all that follows."""
    for _ in range(8):
        x = torch.relu((x @ w) * scale + x)
    return x


def test_what_follows_is_part_of_the_product() -> None:
    """On a GPU a residual that is in memory for one reader is no reason to keep the others out."""
    device = typical("cuda")
    inputs = [torch.ones(*size).bfloat16() for size in ((4096, 128), (128, 128), (128,))]
    gm, _ = trace(residual, inputs, DECOMPOSITIONS)  # type: ignore[arg-type]
    made = schedule(lower(gm, "residual", device), device)
    products = [step for step in made.steps if isinstance(step, Call) and step.extern.target.startswith("aten.mm")]
    assert not products and sum(isinstance(step, Launch) for step in made.steps) == 8
