"""Positions of extremes among many equal ones: eager gives the first, wherever it lies in memory."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

import stator

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
EXTENTS = (1, 2, 3, 5, 8, 9, 16, 17, 33)


@pytest.mark.parametrize("seed", range(10))
def test_the_first_of_equal_extremes(seed: int) -> None:
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    rank = choose.randint(2, 4)
    size = [choose.choice(EXTENTS) for _ in range(rank)]
    x = torch.randint(0, 3, size, generator=generator).to(choose.choice(DTYPES))
    order, dim, flipped = choose.sample(range(rank), rank), choose.randrange(rank), choose.random() < 0.3

    def positions(x: Tensor) -> list[Tensor]:
        y = x.permute(order)
        y = y.flip(0) if flipped else y
        holes = torch.where(y > 1, torch.nan, y.double())
        return [
            *(y.argmax(), y.argmin(), y.argmax(dim), y.argmin(dim, keepdim=True), y.max(dim)[1], y.min(dim)[1]),
            *(holes.argmax(), holes.argmin(dim), y.argmax() + y.long().sum()),
        ]

    compiled = stator.compile(positions, fullgraph=True, options={"strict": True})
    for got, want in zip(compiled(x), positions(x), strict=True):
        assert torch.equal(got, want)
