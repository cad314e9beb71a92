"""Convolutions of each channel alone as a GPU's kernels: which they are, and their values, forward and backward.

The text runs by `stator.tile` on the host; on a GPU whole programs are compared with eager's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from stator.base import log
from stator.kernel.blocks import choose
from stator.loop.kernel import Launch, Schedule
from stator.targets import typical
from tests.codegen import hopper, tiled

aten = torch.ops.aten
GPU = typical("cuda")
#: As if few sums filled the device, so that those of weights come in pieces.
SPLIT = replace(GPU, min_split=64, min_row=16, cores=4, waves=2, columns=4, loop_points=32)
#: Images, channels, sides, and a window with its steps.
SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "3": ((2, 16, 7, 6), {"size": (3, 3), "padding": (1, 1)}),
    "5": ((1, 8, 9, 8), {"size": (5, 5), "padding": (2, 2)}),
    "strides": ((2, 24, 9, 8), {"size": (3, 3), "padding": (1, 1), "stride": (2, 3)}),
    "a column": ((1, 8, 9, 5), {"size": (9, 1), "padding": (4, 0)}),
    "no border": ((1, 8, 8, 7), {"size": (2, 3), "stride": (2, 1)}),
    "dilated": ((1, 8, 9, 10), {"size": (3, 2), "padding": (2, 3), "dilation": (2, 3), "stride": (2, 2)}),
    "wide border": ((2, 12, 5, 4), {"size": (2, 2), "padding": (3, 3)}),
}


def given(kind: str, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Any, ...]]:
    """A gradient, an image and a weight, and what an operator takes behind them."""
    shape, window = SHAPES[kind]
    moves = ([*window.get(name, (default,) * 2)] for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)))
    rest = (None, *moves, False, [0, 0], shape[1])
    x, weight = torch.randn(shape), torch.randn(shape[1], 1, *window["size"])
    gradient = torch.randn_like(aten.convolution(x, weight, *rest))
    return (innermost(gradient.to(dtype)), innermost(x.to(dtype)), weight.to(dtype)), rest


def innermost(image: Tensor) -> Tensor:
    return image.contiguous(memory_format=torch.channels_last)


def libraries(made: Schedule) -> list[Any]:
    return [step for step in made.steps if not isinstance(step, Launch)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_values(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    (_, x, weight), rest = given(kind, dtype)
    made, taken = tiled.scheduled(lambda x, w: aten.convolution(x, w, *rest), x, weight)
    assert not libraries(made)
    (found,) = tiled.run(made, taken, tmp_path)
    near(found, aten.convolution(x.double(), weight.double(), *rest))
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("device", [GPU, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("kind", SHAPES)
def test_gradients(kind: str, device: Any, tmp_path: Path) -> None:
    tensors, rest = given(kind, torch.bfloat16)

    def gradients(*tensors: Tensor) -> Any:
        return aten.convolution_backward(*tensors, *rest, [True, True, False])[:2]

    made, taken = tiled.scheduled(gradients, *tensors, device=device)
    assert not libraries(made)
    found = tiled.run(made, taken, tmp_path)
    for one, exact in zip(found, gradients(*[tensor.double() for tensor in tensors]), strict=True):
        near(one, exact)


def near(found: Tensor, exact: Tensor) -> None:
    """As near as a rounding of what has been summed in float32."""
    assert (found.double() - exact).norm() <= exact.norm() * 2.0**-8


def test_images_of_any_number_and_sides(tmp_path: Path) -> None:
    """Kernels made at one size run at others."""
    weight = torch.randn(16, 1, 3, 3).bfloat16()

    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, None, (2, 1), (1, 1), 1, 16)

    (made,) = tiled.symbolic(convolved, [innermost(torch.randn(2, 16, 8, 6).bfloat16()), weight], {(0, 0), (0, 2)})
    assert not libraries(made)
    for images, rows in ((2, 8), (3, 5)):
        x = innermost(torch.randn(images, 16, rows, 6).bfloat16())
        (found,) = tiled.run(made, [x, weight], tmp_path)
        near(found, convolved(x.double(), weight.double()))


def test_one_gradient_alone() -> None:
    (gradient, x, weight), rest = given("3", torch.bfloat16)
    for wanted in ([True, False, False], [False, True, False]):
        made, _ = tiled.scheduled(
            lambda g, x, w, wanted=wanted: aten.convolution_backward(g, x, w, *rest, wanted)[wanted.index(True)],
            gradient, x, weight,
        )  # fmt: skip
        assert not libraries(made) and len(made.outputs) == 1


def test_which_are_a_librarys() -> None:
    """Of images that lie otherwise, other types, several results a channel, large windows, and other devices."""
    (_, x, weight), rest = given("3", torch.bfloat16)
    cases = [
        (x.contiguous(), weight, GPU), (x.float(), weight.float(), GPU), (x, weight, replace(GPU, depthwise_taps=0)),
        (x, torch.randn(32, 1, 3, 3).bfloat16(), GPU), (innermost(torch.randn(1, 16, 20, 20).bfloat16()),
         torch.randn(16, 1, 8, 8).bfloat16(), GPU),
    ]  # fmt: skip
    for image, kernel, device in cases:
        made, _ = tiled.scheduled(lambda x, w: aten.convolution(x, w, *rest), image, kernel, device=device)
        assert len(libraries(made)) == 1


@pytest.mark.parametrize("size", [(5, 5), (3, 9), (9, 3)], ids=str)
def test_a_gradient_is_read_once_for_a_line_of_the_window(size: tuple[int, int]) -> None:
    """The lines of a weight's gradient are one kernel, with few sums at a time."""
    x, weight = innermost(torch.zeros(32, 64, 56, 56).bfloat16()), torch.randn(64, 1, *size).bfloat16()
    rest = (None, [1, 1], [size[0] // 2, size[1] // 2], [1, 1], False, [0, 0], 64)
    made, _ = tiled.scheduled(
        lambda g, x, w: aten.convolution_backward(g, x, w, *rest, [False, True, False])[1], x, x, weight
    )
    sums, *_ = [kernel for kernel in made.kernels if kernel.reduce_axes]
    assert len(sums.stores) == min(size)


def test_rows_of_windows_are_taken_at_once() -> None:
    """The mean of each channel is part of the convolution, whose weight no loop keeps."""
    x, weight = innermost(torch.zeros(32, 672, 14, 14).bfloat16()), torch.randn(672, 1, 5, 5).bfloat16()
    rest = (None, [1, 1], [2, 2], [1, 1], False, [0, 0], 672)
    made, _ = tiled.scheduled(lambda x, w: (y := aten.convolution(x, w, *rest).relu(), y.mean((2, 3))), x, weight)
    (means,) = [kernel for kernel in made.kernels if kernel.reduce_axes]
    plan = choose(means, GPU)
    assert plan.r == 256 and plan.outer[-1].count == GPU.columns // 2


def test_machine_code() -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    tensors, rest = given("5", torch.bfloat16)
    made, _ = tiled.scheduled(lambda *t: aten.convolution_backward(*t, *rest, [True, True, False])[:2], *tensors)
    assert all("cubin" in stages for stages in hopper.built(made.kernels))


@pytest.mark.gpu
def test_a_training_step() -> None:
    """Of convolutions among which some have a channel each: no call of a library but for the first, and no guess."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.Hardswish(),
        nn.Conv2d(32, 32, 5, padding=2, groups=32, bias=False), nn.BatchNorm2d(32), nn.Hardswish(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1, groups=32), nn.Hardswish(),
    ).cuda().to(memory_format=torch.channels_last)  # fmt: skip
    x = innermost(torch.randn(8, 3, 64, 64, device="cuda"))

    def step(function: Any, dtype: torch.dtype) -> list[Tensor]:
        with torch.autocast("cuda", dtype, enabled=dtype is not torch.float64):
            loss = function(x.to(dtype) if dtype is torch.float64 else x).float().square().mean()
        found = torch.autograd.grad(loss, list(model.parameters()))
        return [loss.detach(), *found]

    eager = step(model, torch.bfloat16)
    compiled = stator.compile(model, fullgraph=True, options={"strict": True, "cache": False, "check_speed": "off"})
    with log.collect() as recorder:
        ours = step(compiled, torch.bfloat16)
    calls = [name for facts in recorder.of(log.KERNELS) for name in facts["externs"]]
    assert len([name for name in calls if "convolution" in name]) == 2, calls  # of the first one, forward and backward
    model.double()
    exact = step(model, torch.float64)
    for one, other, true in zip(ours, eager, exact, strict=True):
        scale = true.norm().item()
        assert (one.double() - true).norm() <= 1.5 * (other.double() - true).norm() + 1e-3 * scale
