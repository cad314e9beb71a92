"""Interpolation of infinities, and of infinite gradients, at random sizes and scales, against eager.

What is read with a weight of zero gives NaN, what is not read does not: so it shows where eager's places lie, and
whether beside an input or on it. The numbers themselves are compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

#: Mode → the dims that it resamples, and how long they are at most.
MODES = {"linear": (1, 60), "bilinear": (2, 24), "trilinear": (3, 9), "bicubic": (2, 24)}
SCALES = (0.5, 1.5, 2.0, 3.0, 0.7, 1.3, 2.5, 1 / 3, 1.1)


def drawn(seed: int) -> tuple[list[int], dict[str, Any]]:
    """The size of an image, and how it is interpolated."""
    draw = random.Random(seed)
    mode = draw.choice([*MODES])
    dims, longest = MODES[mode]
    size = [draw.randint(1, longest) for _ in range(dims)]
    how: dict[str, Any] = {"mode": mode, "align_corners": draw.random() < 0.3}
    scales = [draw.choice(SCALES) for _ in size]
    if draw.random() < 0.5 or any(int(n * scale) < 1 for n, scale in zip(size, scales, strict=True)):
        return size, how | {"size": [draw.choice([n, draw.randint(1, longest)]) for n in size]}
    return size, how | {"scale_factor": scales, "recompute_scale_factor": draw.random() < 0.5}


def observed(function: Callable[[Tensor], Tensor], x: Tensor, step: int) -> list[Tensor]:
    """The value and gradient of finite numbers, of infinities, and for infinite cotangents."""
    found = []
    for inside, after in ((False, False), (True, False), (False, True)):
        given = x.clone()
        if inside:
            given.view(-1)[::step] = torch.inf
        out = function(given.requires_grad_())
        cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
        if after:
            cotangent.view(-1)[::step] = torch.inf
        found += [out.detach(), *torch.autograd.grad(out, given, cotangent)]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_places_are_eagers(seed: int, dtype: torch.dtype) -> None:
    size, how = drawn(seed)

    def interpolated(x: Tensor) -> Tensor:
        return F.interpolate(x, **how)

    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    compiled = stator.compile(interpolated, fullgraph=True, options={"cache": False})
    wanted = observed(interpolated, x, 5)
    scale = max(float(t[t.isfinite()].abs().max()) for t in wanted if t.isfinite().any())
    for got, want in zip(observed(compiled, x, 5), wanted, strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        torch.testing.assert_close(got, want, rtol=0, atol=64 * torch.finfo(dtype).eps * scale, equal_nan=True)
