"""Powers whose exponents eager rounds, or does not: of great numbers a digit of the exponent is many of the result.

A power of 1e19 moves by 44 times as much as its exponent, so that norms and their roots, which eager computes with
one rounded order, are held to a few units in the last place here.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import stator

ORDERS = (0.3, 0.5, 1.7, 2.2, 3.0, 5.0)


def _compiled(function: object, *inputs: Tensor) -> object:
    return stator.compile(function, fullgraph=True, options={"strict": True})(*inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1e15, 1.0, 1e-12])
def test_distances_and_norms(order: float, size: float) -> None:
    """One difference a distance, so that no order of sums shows; and its gradient."""
    if size == 1e15 and order > 2.2:
        size = 1e5  # whose powers are floats
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(40, 1, 1, generator=generator) * size for _ in range(2))

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.detach().requires_grad_()
        distance = torch.cdist(x, y, p=order)
        (slope,) = torch.autograd.grad(distance.sum(), x)
        rows = torch.cat([x, y], -1)
        return distance.detach(), slope, torch.linalg.vector_norm(rows.detach(), order, -1)

    for name, got, want in zip(("distance", "slope", "norm"), _compiled(program, x, y), program(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=4e-7, atol=0, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str)
def test_spaced_powers(dtype: torch.dtype) -> None:
    """Eager rounds the ends to the dtype, and takes powers of doubles between them: bit for bit."""
    given = [(-3.3, 1.7, 41, 1.7), (0.3, 2.7, 5, 1.1), (0.3, 17.7, 7, math.e), (-2, 3, 6, -2.0), (3, 5, 2, 2.0)]
    given += [(-30.3, 17.7, 41, 10.0)] * dtype.is_floating_point

    def program(first: Tensor) -> list[Tensor]:
        made = [torch.logspace(start, end, n, base=base, dtype=dtype) for start, end, n, base in given]
        return [*made, torch.logspace(first, 2.9, 9, base=3.0, dtype=dtype)]

    first = torch.tensor(-1.7)
    for row, got, want in zip([*given, "tensor"], _compiled(program, first), program(first), strict=True):
        assert torch.equal(got, want), row
