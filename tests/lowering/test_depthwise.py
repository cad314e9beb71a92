"""Convolutions of each channel alone as loops: which they are, their values and strides, what is fused with them."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base import log
from stator.targets.cpu import record

OPTIONS: dict[str, Any] = {"strict": True, "cache": False, "check_speed": "off"}
CHANNELS = 24  # no multiple of a vector, and as many as the widest has lanes, or more


def run(function: Callable[..., Any], *given: Tensor, **options: Any) -> tuple[Any, list[str], list[str]]:
    """The result, the kernels and the calls of libraries in forward."""
    with log.collect() as recorder:
        found = stator.compile(function, fullgraph=True, options={**OPTIONS, **options})(*given)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    return found, list(facts["names"]), list(facts["externs"])


def near(found: Tensor, wanted: Tensor, exact: Tensor) -> None:
    """Strides of eager's, and numbers as near to the exact ones as a rounding of the largest terms."""
    assert found.stride() == wanted.stride() and found.dtype is wanted.dtype
    scale = exact.abs().max().item()
    error = (found.double() - exact).abs().max().item()
    assert error <= scale * (2.0**-7 if found.dtype is torch.bfloat16 else 4e-6)


def image(dtype: torch.dtype, innermost: bool, *size: int) -> Tensor:
    made = torch.randn(size).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if innermost else made


WINDOWS = {
    "3": {"kernel_size": 3, "padding": 1}, "5": {"kernel_size": 5, "padding": 2}, "no border": {"kernel_size": 3},
    "stride": {"kernel_size": 3, "stride": 2, "padding": 1}, "uneven": {"kernel_size": (2, 4), "stride": (1, 3)},
    "dilated": {"kernel_size": 3, "dilation": (2, 3), "padding": (2, 3)}, "one pixel": {"kernel_size": 1},
    "no bias": {"kernel_size": 3, "padding": (0, 2), "bias": False}, "wide border": {"kernel_size": 2, "padding": 3},
}  # fmt: skip


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("freezing", [False, True])
def test_values_and_strides(kind: str, dtype: torch.dtype, innermost: bool, freezing: bool) -> None:
    layer = nn.Conv2d(CHANNELS, CHANNELS, groups=CHANNELS, **WINDOWS[kind]).to(dtype)
    x = image(dtype, innermost, 2, CHANNELS, 9, 11)

    def function(x: Tensor) -> Tensor:
        return F.hardswish(layer(x * 2)) + 1

    model = nn.Sequential(layer)
    model.forward = function  # type: ignore[method-assign]  # parameters are frozen only of modules
    with torch.no_grad():
        found, kernels, calls = run(model, x, freezing=freezing)
        wanted = function(x)
        exact = F.hardswish(layer.double()(x.double() * 2)) + 1
    assert not calls and 1 <= len(kernels) <= 4
    near(found, wanted, exact)


BORDERS: dict[str, dict[str, Any]] = {
    "one side": {"pads": (0, 1, 0, 1), "stride": 2}, "uneven": {"pads": (1, 2, 3, 0)}, "even": {"pads": (1, 1, 1, 1)},
    "of ones": {"pads": (0, 1, 2, 1), "value": 1.0}, "cut": {"pads": (-1, 1, 2, -2)},
    "beside the window's": {"pads": (0, 1, 1, 0), "padding": 1}, "of channels too": {"pads": (1, 0, 0, 1, 1, 2)},
}  # fmt: skip


@pytest.mark.parametrize("kind", BORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("freezing", [False, True])
def test_a_border_is_no_memory(kind: str, dtype: torch.dtype, freezing: bool) -> None:
    """What is inside is written once, by the kernel that computes it; weights that are no numbers meet the border."""
    given = dict(BORDERS[kind])
    pads, value = given.pop("pads"), given.pop("value", 0.0)
    channels = CHANNELS + sum(pads[4:])
    layer = nn.Conv2d(channels, channels, 3, groups=channels, **given).to(dtype)
    x = image(dtype, False, 2, CHANNELS, 10, 9)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(F.pad(F.relu6(x * 2), pads, value=value)).relu()

    model = Model()
    with torch.no_grad():
        found, kernels, calls = run(model, x, freezing=freezing)
        wanted = model(x)
        exact = model.double()(x.double())
        layer.to(dtype)
        assert not calls and len(kernels) <= 4
        near(found, wanted, exact)
        if kind == "one side":
            layer.weight[3, 0, 2, 2] = math.inf
            inner = stator.compile(model, fullgraph=True, options={**OPTIONS, "freezing": freezing})(x)
            torch.testing.assert_close(inner.isnan(), model(x).isnan())
            assert inner.isnan().any()


@pytest.mark.parametrize("innermost", [False, True])
def test_gradients_are_eagers(innermost: bool) -> None:
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)
    x = image(torch.float32, innermost, 2, CHANNELS, 6, 7)
    wanted, found = (
        torch.autograd.grad(function(leaf := x.clone().requires_grad_()).tanh().sum(), [leaf, *layer.parameters()])
        for function in (layer, stator.compile(layer, fullgraph=True, options=OPTIONS))
    )
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


STAYS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "few channels": (lambda: nn.Conv2d(3, 3, 3, groups=3), (2, 3, 8, 9)),
    "several results": (lambda: nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, groups=CHANNELS), (2, CHANNELS, 8, 9)),
    "large window": (lambda: nn.Conv2d(CHANNELS, CHANNELS, 7, groups=CHANNELS), (1, CHANNELS, 9, 9)),
    "all channels": (lambda: nn.Conv2d(CHANNELS, 8, 3), (2, CHANNELS, 8, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(CHANNELS, CHANNELS, 3, groups=CHANNELS), (2, CHANNELS, 8, 9)),
    "one dim": (lambda: nn.Conv1d(CHANNELS, CHANNELS, 3, groups=CHANNELS), (2, CHANNELS, 9)),
    "one row": (lambda: nn.Conv2d(CHANNELS, CHANNELS, (8, 3), groups=CHANNELS), (2, CHANNELS, 8, 9)),
    "float64": (lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, groups=CHANNELS).double(), (2, CHANNELS, 8, 9)),
}


@pytest.mark.parametrize("kind", STAYS)
def test_what_stays_with_the_library(kind: str) -> None:
    build, size = STAYS[kind]
    layer = build()
    x = torch.randn(size, dtype=next(layer.parameters()).dtype)
    with torch.no_grad():
        found, _, calls = run(lambda x: layer(x * 2) + 1, x)
        assert calls == ["aten.convolution.default"]
        torch.testing.assert_close(found, layer(x * 2) + 1, rtol=1e-4, atol=1e-4)


def test_sizes_that_change() -> None:
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)
    compiled = stator.compile(lambda x: layer(x) * 2, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        for batch, height in ((2, 8), (3, 8), (4, 10)):
            x = torch.randn(batch, CHANNELS, height, 9)
            torch.testing.assert_close(compiled(x), layer(x) * 2, rtol=1e-4, atol=1e-5)


def test_what_is_returned_or_kept_lies_as_in_eager() -> None:
    layer, x = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), torch.randn(2, CHANNELS, 8, 9)
    with torch.no_grad():
        found, _, calls = run(lambda x: (layer(x * 2), x), x)
        wanted = layer(x * 2)
    assert calls == ["aten.convolution.default"] and found[0].stride() == wanted.stride()
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0])
def test_special_values_reach_what_reads_them(value: float) -> None:
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)
    x = torch.randn(1, CHANNELS, 7, 6)
    x[0, 5, 0, 0] = x[0, 6, 3, 3] = value
    with torch.no_grad():
        found, _, calls = run(lambda x: layer(x * 1.5).neg(), x)
        wanted = layer(x * 1.5).neg()
    assert not calls
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("freezing", [False, True])
def test_random_networks(seed: int, freezing: bool) -> None:
    """Convolutions of each channel alone between others, with norms, gates and residuals."""
    source = random.Random(seed)
    torch.manual_seed(seed)
    channels, layers = source.choice((16, 24, 40)), []
    for _ in range(source.randint(2, 4)):
        length, step = source.choice((3, 5)), source.randint(1, 2)
        layers += [
            nn.Conv2d(channels, channels, length, step, length // 2, groups=channels, bias=source.random() < 0.5),
            nn.BatchNorm2d(channels).eval(), source.choice((nn.ReLU6(), nn.SiLU(), nn.Hardswish())),
            nn.Conv2d(channels, channels := source.choice((16, 24, 32)), 1),
        ]  # fmt: skip
    model = nn.Sequential(*layers).eval()
    x = torch.randn(source.randint(1, 2), model[0].in_channels, source.randint(17, 20), source.randint(17, 20))
    with torch.no_grad():
        found, _, calls = run(model, x, freezing=freezing)
        wanted, exact = model(x), model.double()(x.double())
    alone = sum(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in layers)
    assert len(calls) <= len(layers) // 2 - alone, "only the others are a library's"
    near(found, wanted, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_single_pixels_are_products(dtype: torch.dtype, bias: bool) -> None:
    """As gates of squeeze and excitation have them."""
    layer, x = nn.Conv2d(48, 12, 1, bias=bias).to(dtype), torch.randn(3, 48, 5, 5).to(dtype)

    def gate(x: Tensor) -> Tensor:
        return layer(x.mean((2, 3), keepdim=True)).sigmoid()

    with torch.no_grad():
        found, _, calls = run(gate, x)
        wanted = gate(x)
        exact = layer.double()(x.double().mean((2, 3), keepdim=True)).sigmoid()
    assert "aten.convolution.default" not in calls
    near(found, wanted, exact)


def test_machines_without_wide_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With narrow vectors fewer channels are enough; the values are the same."""
    monkeypatch.setattr(record, "vector_bytes", lambda: 32)
    layer, x = nn.Conv2d(9, 9, 3, padding=1, groups=9), torch.randn(2, 9, 6, 7)
    with torch.no_grad():
        found, _, calls = run(lambda x: layer(x * 2).neg(), x)
        assert not calls
        torch.testing.assert_close(found, layer(x * 2).neg(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("freezing", [False, True])
def test_one_version_for_several_sizes(kind: str, dims: tuple[int, ...], freezing: bool) -> None:
    """It has the loops that known sizes have, and is right for odd sizes and for small ones."""
    model = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, groups=CHANNELS, **WINDOWS[kind]), nn.Hardswish())
    compiled = stator.compile(model, fullgraph=True, options={**OPTIONS, "freezing": freezing})
    sizes = [(2, 9, 11), (3, 24, 17), (5, 8, 7), (7, 30, 30), (1, 5, 4)]
    with torch.no_grad(), log.collect() as recorder:
        for call, others in enumerate(sizes):
            n, h, w = (
                other if dim in dims else now for dim, other, now in zip((0, 2, 3), others, sizes[0], strict=True)
            )
            x = torch.randn(n, CHANNELS, h, w)
            found = compiled(x if call else marked(x, dims))
            near(found, model(x), copy.deepcopy(model).double()(x.double()))
    first, *_ = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    assert not first["externs"] and len(first["names"]) <= 3


def marked(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    stator.mark_dynamic(x, list(dims))
    return x


def test_gates_of_a_number_of_images_that_changes() -> None:
    """Convolutions of one pixel are products, however many images there are."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.SiLU(), nn.Conv2d(6, 24, 1, bias=False))

    def gated(x: Tensor) -> Tensor:
        return x * torch.sigmoid(model(x))

    compiled = stator.compile(gated, fullgraph=True, options=OPTIONS)
    with torch.no_grad(), log.collect() as recorder:
        for n in (2, 3, 16, 700):
            x = torch.randn(n, 24, 5, 6)
            torch.testing.assert_close(compiled(marked(x, (0,))), gated(x))
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    assert not [name for name in facts["externs"] if "convolution" in name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_costly_number_of_a_channel_is_computed_once(dtype: torch.dtype) -> None:
    """The gate of a squeeze is one kernel's result, not computed again for each pixel whose channels are lanes."""
    gates = torch.randn(2, CHANNELS, 1, 1, dtype=dtype)
    x = image(dtype, True, 2, CHANNELS, 40, 40)
    found, kernels, _ = run(lambda x, g: x * torch.sigmoid(g + 1), x, gates)
    assert len(kernels) == 2
    torch.testing.assert_close(found, x * torch.sigmoid(gates + 1))
    assert len(run(lambda x, g: x * (g + 1), x, gates)[1]) == 1
