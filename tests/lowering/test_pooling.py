"""The gradient of a max pool as a loop that gathers, against eager's in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.loop.kernel import Launch
from stator.loop.nest import Extern
from stator.loop.verify import verify_program
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.execute import run
from tests.cases.graphs import trace
from tests.codegen import tiled

GATHERS = replace(typical("cpu"), gathers_pools=True)
backward = torch.ops.aten.max_pool2d_with_indices_backward.default
#: Size, stride, padding, dilation, ceil_mode.
WINDOWS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False), ((3, 3), (2, 2), (1, 1), (1, 1), False),
    ((3, 2), (1, 3), (1, 0), (1, 1), False), ((2, 3), (), (0, 1), (2, 1), True), ((3, 3), (3, 1), (1, 1), (1, 2), True),
]  # fmt: skip


def gradient(x: Tensor, window: tuple[object, ...]) -> tuple[Tensor, ...]:
    """Its inputs: what the pool gave, a gradient for it, and where the greatest are."""
    y, indices = F.max_pool2d(x, *window, return_indices=True)  # type: ignore[arg-type]
    return torch.randn_like(y), indices


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_agrees_with_float64(window: tuple[object, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 11).to(dtype)
    grad, indices = gradient(x, (window[0], window[1] or None, *window[2:]))

    def program(grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
        return backward(grad, x, *window, indices)

    gm, inputs = trace(program, (grad, x, indices), DECOMPOSITIONS)
    made = lower(gm, "pool", GATHERS)
    verify_program(made)
    assert not any(isinstance(node, Extern) for node in made.nodes)
    (found,) = run(made, inputs)
    exact = program(grad.double(), x.double(), indices)  # eager adds half types up in half precision
    torch.testing.assert_close(found, exact.to(dtype))


def test_windows_of_many_elements_are_pytorchs() -> None:
    x = torch.randn(1, 1, 12, 12)
    window = ((5, 5), (1, 1), (0, 0), (1, 1), False)
    grad, indices = gradient(x, window)
    gm, _ = trace(lambda g, x, i: backward(g, x, *window, i), (grad, x, indices), DECOMPOSITIONS)
    assert any(isinstance(node, Extern) for node in lower(gm, "pool", GATHERS).nodes)


def test_one_kernel_asks_the_windows(tmp_path: Path) -> None:
    """As in a network: the gradient is masked, summed twice over the image, and read once more."""
    window = ((3, 3), (2, 2), (1, 1), (1, 1), False)

    def program(grad: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        y = torch.relu(x * scale)
        _, indices = F.max_pool2d(y, *window, return_indices=True)  # type: ignore[arg-type]
        masked = torch.where(y <= 0, 0.0, backward(grad, y, *window, indices))
        return masked.sum((0, 2, 3)), (masked * x).sum((0, 2, 3)), masked * scale

    torch.manual_seed(0)
    image = torch.randn(2, 8, 32, 32).to(memory_format=torch.channels_last)
    inputs = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last), image, torch.rand(1, 8, 1, 1) + 0.5
    made, given = tiled.scheduled(program, *inputs)
    launches = [step for step in made.steps if isinstance(step, Launch)]
    assert len([step for step in launches if any(pointer.buffer == "arg0" for pointer in step.args)]) == 1, made.text()
    assert [made.buffers[name].stride[1] for name in made.buffers if name.startswith("max_pool2d")] == [1, 1]
    for found, wanted in zip(tiled.run(made, given, tmp_path), program(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
