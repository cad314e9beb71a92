"""Images with the channel innermost between convolutions: where that is so, and results with eager's strides."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base.device import Device
from stator.loop import layout
from stator.loop.fusion import FusionPlan
from stator.loop.layout import Choice
from stator.lowering import convolution

Layer = Callable[[Tensor], Tensor]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Choice]]:
    """What is chosen while the test runs."""
    found: list[Choice] = []
    settle = layout.settle

    def settled(plan: FusionPlan, device: Device) -> tuple[FusionPlan, tuple[Choice, ...]]:
        plan, choices = settle(plan, device)
        found.extend(choices)
        return plan, choices

    monkeypatch.setattr(layout, "settle", settled)
    yield found


@pytest.fixture
def eager_to_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images pay for no conversion: here convolutions gain whatever it costs."""
    for name, value in (("_ALONE", 1e6), ("_TOGETHER", {"f32": 1e6, "bf16": 1e6}), ("_WEIGHT", 0.0)):
        monkeypatch.setattr(convolution, name, value)


class Random(nn.Module):
    """Convolutions of any kind with what lies between them in networks."""

    def __init__(self, source: random.Random, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.kinds: list[str] = []
        for _ in range(source.randint(3, 7)):
            kind = source.choice(
                ("convolution", "convolution", "norm", "gate", "residual", "join", "pool", "resize", "pad")
            )
            self.kinds.append(kind)
            self.layers.append(nn.Identity())
            if kind == "convolution":
                self.layers[-1], channels = convolved(source, channels)
            elif kind == "norm":
                self.layers[-1] = norm(channels)
            elif kind == "gate":
                self.layers[-1] = nn.Conv2d(channels, channels, 1)
            elif kind == "join":
                channels *= 2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = x
        for kind, layer in zip(self.kinds, self.layers, strict=True):
            y = layer(x)
            if kind == "gate":
                y = x * F.hardsigmoid(layer(x.mean((2, 3), keepdim=True)))
            elif kind == "residual":
                y = F.relu(x) + (before if before.shape == x.shape else 1.0)
            elif kind == "join":
                y = torch.cat([F.hardswish(x), x], 1)
            elif kind == "pool" and min(x.shape[2:]) > 2:
                y = F.max_pool2d(x, 3, 2, 1) if x.shape[1] % 2 else F.avg_pool2d(x, 2, 1)
            elif kind == "resize" and max(x.shape[2:]) < 20:
                y = F.interpolate(x, scale_factor=2.0)
            elif kind == "pad":
                y = F.pad(x, (1, 0, 0, 2))
            before, x = x, y
        return x, F.relu(x).sum((2, 3))


def convolved(source: random.Random, channels: int) -> tuple[nn.Module, int]:
    groups = source.choice([n for n in (1, 1, 2, 3, channels) if channels % n == 0])
    made = groups * source.randint(1, 4)
    length, bias = source.choice((1, 1, 3, 5)), source.random() < 0.5
    if source.random() < 0.15:
        return nn.ConvTranspose2d(channels, made, length, source.randint(1, 2), groups=groups, bias=bias), made
    step, reach = source.randint(1, 2), source.randint(1, 2)
    return nn.Conv2d(channels, made, length, step, length // 2 * reach, reach, groups, bias), made


def norm(channels: int) -> nn.Module:
    made = nn.BatchNorm2d(channels).eval()
    nn.init.uniform_(made.running_var, 0.5, 1.5)
    nn.init.normal_(made.running_mean)
    return made


def agree(found: Tensor, wanted: Tensor, exact: Tensor) -> None:
    assert found.stride() == wanted.stride() and found.dtype is wanted.dtype
    rounding = 2.0**-6 if wanted.dtype is torch.bfloat16 else 1e-4
    most = exact.abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found.double(), exact, rtol=8 * rounding, atol=8 * rounding * (1 + most))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("eager_to_turn")
def test_random_networks(seed: int) -> None:
    source = random.Random(seed)
    torch.manual_seed(seed)
    dtype = source.choice((torch.float32, torch.float32, torch.bfloat16))
    shape = source.choice((0, 1, 1, 2)), source.choice((1, 3, 6)), source.randint(3, 9), source.randint(3, 9)
    model = Random(source, shape[1]).eval()
    x = torch.randn(shape)
    with torch.no_grad():
        exact = model.double()(x.double())
        model = model.to(dtype)
        wanted = model(x.to(dtype))
        found = stator.compile(model, fullgraph=True, dynamic=source.random() < 0.3)(x.to(dtype))
    for a, b, c in zip(found, wanted, exact, strict=True):
        agree(a, b, c)


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.usefixtures("eager_to_turn")
def test_pools_of_images_of_any_side(chosen: list[Choice], kernel: int) -> None:
    """The border of a pool is known by its mask alone, where a row is not: the image under it is turned, too."""
    torch.manual_seed(kernel)
    layers = [
        nn.Conv2d(3, 16, 3, 2, 1),
        norm(16),
        nn.ReLU(),
        nn.MaxPool2d(kernel, 2, kernel // 2),
        nn.Conv2d(16, 16, 1),
    ]
    model = nn.Sequential(*layers, norm(16), nn.ReLU(), nn.Conv2d(16, 8, 3, 1, 1), nn.ReLU()).eval()
    compiled, wide = stator.compile(model, fullgraph=True), copy.deepcopy(model).double()
    for sides in ((20, 24), (20, 23), (19, 30), (21, 21), (8, 9), (6, 5), (11, 4)):
        x = torch.randn(2, 3, *sides)
        stator.mark_dynamic(x, 2)
        stator.mark_dynamic(x, 3)
        with torch.no_grad():
            agree(compiled(x), model(x), wide(x.double()))
    strides = {choice.buffer.name: choice.layout.buffer(choice.buffer).stride for choice in chosen}
    assert strides["convolution"][1] == 1


@pytest.mark.usefixtures("eager_to_turn")
def test_many_of_them_are_turned(chosen: list[Choice]) -> None:
    for seed in range(6):
        source = random.Random(seed)
        model = Random(source, 6).eval()
        with torch.no_grad():
            stator.compile(model, fullgraph=True)(torch.randn(1, 6, 8, 8))
    assert len(chosen) > 5 and any(choice.call is not None for choice in chosen)


@pytest.mark.parametrize("seed", range(100, 106))
@pytest.mark.usefixtures("eager_to_turn")
def test_gradients_of_random_networks(seed: int) -> None:
    source = random.Random(seed)
    torch.manual_seed(seed)
    model = Random(source, 6).eval()
    x = torch.randn(2, 6, 8, 7)
    given = list(model.parameters())
    found = stator.compile(model, fullgraph=True)(x)
    wanted = model(x)
    seeds = [torch.randn_like(value) for value in wanted]
    ours = torch.autograd.grad(found, given, seeds, allow_unused=True)
    theirs = torch.autograd.grad(wanted, given, seeds, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) is (b is None)
        if a is not None and b is not None:
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3 * (1 + b.abs().max().item()))


def test_convolutions_in_a_row(chosen: list[Choice]) -> None:
    """Inverted residuals: all between the given image and the sum over it has the channel innermost.

    What convolutions of each channel alone read and give has it so anyway.
    """
    torch.manual_seed(0)
    block = [nn.Conv2d(16, 72, 1), norm(72), nn.Hardswish(), nn.Conv2d(72, 72, 3, 1, 1, groups=72), norm(72), nn.ReLU()]
    model = nn.Sequential(*block, nn.Conv2d(72, 16, 1), norm(16), *block, nn.AdaptiveAvgPool2d(1)).eval()
    x = torch.randn(1, 16, 56, 56)
    with torch.no_grad():
        found, wanted = stator.compile(model, fullgraph=True)(x), model(x)
    agree(found, wanted, wanted.double())
    strides = {choice.buffer.name: choice.layout.buffer(choice.buffer).stride for choice in chosen}
    assert len(strides) == 6 and all(stride[1] == 1 for stride in strides.values())
    assert any(choice.call is not None for choice in chosen)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.usefixtures("eager_to_turn")
def test_types_that_the_library_does_not_take(chosen: list[Choice], dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU()).to(dtype)
    with torch.no_grad():
        stator.compile(model, fullgraph=True)(torch.randn(1, 4, 12, 12, dtype=dtype))
    assert chosen == []


@pytest.mark.usefixtures("eager_to_turn")
def test_weights_that_are_cast_stay(chosen: list[Choice]) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU())
    x = torch.randn(1, 4, 12, 12)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = stator.compile(model, fullgraph=True)(x), model(x)
    agree(found, wanted, wanted.double())
    assert chosen and all(choice.buffer.size[2:] != (3, 3) for choice in chosen)


def test_one_convolution_stays(chosen: list[Choice]) -> None:
    """It pays for no conversion of a given image and of a result."""
    model = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
    with torch.no_grad():
        stator.compile(model, fullgraph=True)(torch.randn(1, 32, 28, 28))
    assert chosen == []


def test_heavy_weights_stay(chosen: list[Choice]) -> None:
    """Small images of many channels: the library brings weights to them more slowly."""
    layers = [nn.Conv2d(256, 256, 3, 1, 1), norm(256), nn.ReLU()]
    model = nn.Sequential(nn.ReLU(), *layers, *layers).eval()
    with torch.no_grad():
        stator.compile(model, fullgraph=True)(torch.randn(1, 256, 7, 7))
    assert chosen == []


def test_windows_of_short_rows(chosen: list[Choice]) -> None:
    """The library loses by it, and the kernel of each channel alone, whose rows fill half a vector, gains more."""
    torch.manual_seed(0)
    block = [nn.Conv2d(24, 1152, 1), norm(1152), nn.SiLU(), nn.Conv2d(1152, 1152, 5, 1, 2, groups=1152), norm(1152)]
    model = nn.Sequential(*block, nn.SiLU(), nn.AdaptiveAvgPool2d(1)).eval()
    x = torch.randn(2, 24, 7, 8)
    with torch.no_grad():
        found, wanted = stator.compile(model, fullgraph=True)(x), model(x)
    agree(found, wanted, wanted.double())
    strides = {choice.buffer.name: choice.layout.buffer(choice.buffer).stride for choice in chosen}
    assert strides["convolution"][1] == 1
