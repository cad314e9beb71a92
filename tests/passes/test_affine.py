"""Scales and shifts of channels become part of the convolution before them, to within roundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator.base import log

OPTIONS = {"freezing": True, "check_speed": "off", "strict": True, "cache": False}


class Net(nn.Module):
    def __init__(self, conv: nn.Module, after: Callable[[Tensor, nn.Module], Tensor] | None = None) -> None:
        super().__init__()
        self.conv = conv
        rank = {nn.Conv1d: 1, nn.Conv3d: 3}.get(type(conv), 2)  # type: ignore[arg-type]
        self.norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1](conv.out_channels)  # type: ignore[arg-type]
        self.gain = nn.Parameter(torch.randn(conv.out_channels, *[1] * rank))  # type: ignore[call-overload]
        self.after = after
        for tensor in (self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias):
            nn.init.uniform_(tensor, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)) if self.after is None else self.after(self.conv(x), self)


CONVOLUTIONS: dict[str, Callable[[], Any]] = {
    "bias": lambda: nn.Conv2d(4, 6, 3), "no bias": lambda: nn.Conv2d(4, 6, 3, bias=False),
    "groups": lambda: nn.Conv2d(4, 6, 3, groups=2), "depthwise": lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1),
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2, dilation=2, padding=1), "one dim": lambda: nn.Conv1d(4, 6, 3),
    "three dims": lambda: nn.Conv3d(4, 6, 2), "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2),
    "one channel": lambda: nn.Conv2d(4, 1, 3),
}  # fmt: skip
SHAPES = {"one dim": (2, 4, 9), "three dims": (2, 4, 5, 6, 7)}


def calls(model: nn.Module, x: Tensor, **options: object) -> tuple[Tensor, int, int]:
    """The result, how many kernels the main graph runs, and whether there is a prologue."""
    with log.collect() as recorder, torch.no_grad():
        out = stator.compile(model, options=OPTIONS | options)(x)
    names = {facts["graph"]: facts["names"] for facts in recorder.of(log.KERNELS)}
    return out, len(names["forward"]), "forward_prologue" in names


def agree(model: nn.Module, x: Tensor, found: Tensor) -> None:
    """As accurate as eager."""
    with torch.no_grad():
        want = model(x)
        exact = model.double()(x.double())
    assert found.dtype is want.dtype and found.stride() == want.stride()
    error, eager = (found - exact).abs().max(), (want - exact).abs().max()
    assert error <= 4 * eager + 4e-6 * exact.abs().max()


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm(kind: str, dtype: torch.dtype) -> None:
    model = Net(CONVOLUTIONS[kind]()).eval().to(dtype)
    x = torch.randn(SHAPES.get(kind, (2, 4, 9, 8)), dtype=dtype)
    found, kernels, prologue = calls(model, x)
    assert kernels == 0 and prologue
    agree(model, x, found)


def test_channels_last() -> None:
    model = Net(CONVOLUTIONS["bias"]()).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 9, 8).contiguous(memory_format=torch.channels_last)
    found, kernels, _ = calls(model, x)
    assert kernels == 0
    agree(model, x, found)


#: What follows a convolution, and whether all of it is folded.
FOLLOWS: dict[str, tuple[Callable[[Tensor, Any], Tensor], bool]] = {
    "all steps": (lambda y, m: (3 - (y * 2 - m.gain) / m.gain) + 1, True),
    "a number": (lambda y, m: y * 0.5, True), "a shift": (lambda y, m: m.gain + y, True),
    "two norms": (lambda y, m: m.norm(m.norm(y)), True), "another reader": (lambda y, m: m.norm(y) + y, False),
    "divided by it": (lambda y, m: m.gain / y, False), "more channels": (lambda y, m: y[:, :1] * m.gain, False),
    "of rows": (lambda y, m: y * m.gain.view(1, 1, -1, 1), False), "itself": (lambda y, m: y + y, False),
    "alpha": (lambda y, m: torch.add(y, m.gain, alpha=2), False),
    "relu between": (lambda y, m: m.norm(y.relu()), False),
}  # fmt: skip


@pytest.mark.parametrize("what", FOLLOWS)
def test_what_follows(what: str) -> None:
    after, whole = FOLLOWS[what]
    model = Net(nn.Conv2d(4, 6, 3, padding=1), after).eval()
    x = torch.randn(2, 4, 6, 6)
    found, kernels, _ = calls(model, x)
    assert (kernels == 0) is whole
    agree(model, x, found)


def test_what_is_left_alone() -> None:
    """Groups of a transposed convolution have their channels in two dims; half types are rounded in between."""
    model, x = Net(nn.ConvTranspose2d(4, 6, 3, groups=2)).eval(), torch.randn(2, 4, 6, 6)
    found, kernels, _ = calls(model, x)
    assert kernels == 1
    agree(model, x, found)
    half = Net(nn.Conv2d(4, 6, 3)).eval().bfloat16()
    found, kernels, _ = calls(half, x.bfloat16())
    assert kernels == 1
    with torch.no_grad():
        torch.testing.assert_close(found, half(x.bfloat16()))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_where_roundings_may_go(kind: str, autocast: bool) -> None:
    model = Net(CONVOLUTIONS[kind]()).eval()
    x = torch.randn(SHAPES.get(kind, (2, 4, 9, 8)))
    if not autocast:
        model, x = model.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, kernels, _ = calls(model, x, numerics="fast")
        with torch.no_grad():
            want = model(x)
    with torch.no_grad():
        exact = model.double()(x.double())
    assert kernels == (1 if autocast else 0)  # the image is converted
    assert found.dtype is want.dtype and found.stride() == want.stride()
    assert (found - exact).norm() <= 2 * (want - exact).norm() + 2**-8 * exact.norm()


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_bfloat16_that_is_rounded_in_between_has_one_scale_and_one_shift(kind: str) -> None:
    """What is kept are two float32 for each channel; results are eager's, but for what a last digit of these rounds."""
    model = Net(CONVOLUTIONS[kind]()).eval().bfloat16()
    x = torch.randn(SHAPES.get(kind, (2, 4, 9, 8))).bfloat16()
    found, kernels, _ = calls(model, x)
    with torch.no_grad():
        kept = sum(facts["kept"] for facts in stator.explain(model, options=OPTIONS)(x).memory)
        want = model(x)
        exact = model.double()(x.double())
    assert kernels == 1 and kept == 8 * want.shape[1]
    assert (found != want).float().mean() < 0.02
    assert (found - exact).norm() <= 1.01 * (want - exact).norm()


def test_scales_of_bfloat16_that_others_read() -> None:
    """What is read between stays as it is."""

    def after(y: Tensor, m: nn.Module) -> Tensor:
        z = y.float() - m.gain.float()
        return (z * m.gain.float() * 2 + 1).bfloat16() + z.bfloat16()

    model, x = Net(nn.Conv2d(4, 6, 3), after).eval().bfloat16(), torch.randn(2, 4, 6, 6).bfloat16()
    found, _, _ = calls(model, x)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))


def test_other_readers_of_what_is_rounded() -> None:
    """What is read between keeps its rounding; so does what is a half type on the way."""
    for after in (lambda y, m: m.norm(y) + y, lambda y, m: y * 0.5, lambda y, m: y.float() * m.gain.float()):
        model = Net(nn.Conv2d(4, 6, 3, padding=1), after).eval().bfloat16()
        x = torch.randn(2, 4, 6, 6).bfloat16()
        found, kernels, _ = calls(model, x, numerics="fast")
        assert kernels == 1
        with torch.no_grad():
            torch.testing.assert_close(found, model(x), rtol=2**-6, atol=2**-6)


def test_nothing_is_folded_without_the_option() -> None:
    model, x = Net(nn.Conv2d(4, 6, 3)).eval(), torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        explanation = stator.explain(model)(x)
    assert len(explanation.kernels) == 1 and not explanation.memory[0]["kept"]
