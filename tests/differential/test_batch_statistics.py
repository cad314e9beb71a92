"""Batch and instance norm of numbers whose sum, or that of squares, no float32 holds: eager adds in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

#: Ways to lay out images, by which eager chooses what it adds in which type.
LAYOUTS = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.mT.contiguous().mT,
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
}
#: The sum of squares overflows from the third on, their mean does not yet; with the last the sum itself: in any order.
SCALES = (1.0, 1e18, 2e19, 1e25, 3e37)
PIXELS = (3, 3, 5, 4)


def _numbers(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) + 0.5


def _batch(x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, training=True)


def _running(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = torch.zeros(3), torch.ones(3)
    return F.batch_norm(x, mean, variance, training=True), mean, variance


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm", [_batch, _running, F.instance_norm])
def test_sums_that_overflow(norm, layout, dynamic):
    compiled = stator.compile(norm, dynamic=dynamic, options={"strict": True, "cache": False})
    for scale in SCALES:
        x = LAYOUTS[layout](_numbers(PIXELS) * scale)
        torch.testing.assert_close(compiled(x), norm(x), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 1), (4, 3, 7), (2, 3, 2, 2, 2)])
def test_other_shapes(shape):
    compiled = stator.compile(_batch, options={"strict": True, "cache": False})
    for scale in SCALES:
        x = _numbers(shape) * scale
        torch.testing.assert_close(compiled(x), _batch(x), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_largest_numbers(layout, dtype):
    """Their mean is a number; what differences from it, which are none, become is eager's, in forward and backward."""
    large = torch.finfo(dtype).max
    values = torch.tensor([large, -large, large / 3, 0.0, 1.0], dtype=dtype)
    x = LAYOUTS[layout](values.expand(2, 3, 4, 5)).clone(memory_format=torch.preserve_format).requires_grad_()
    cotangent = torch.rand(x.shape, dtype=dtype)
    compiled = stator.compile(_batch, options={"strict": True, "cache": False})
    for found, wanted in zip(*[_with_gradient(norm, x, cotangent) for norm in (compiled, _batch)], strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def _with_gradient(norm, x, cotangent):
    result = norm(x)
    return result, *torch.autograd.grad(result, x, cotangent)
