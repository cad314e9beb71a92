"""The judge's zeros of both signs: where an extreme had one of each to choose from, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stator.coverage.tied import Tied

#: Rows, and the signs that the zero which is the greatest, and the least, may have; nothing where it is no zero.
ROWS = ((0.0, -0.0), (0.0, 0.0), (-0.0, -0.0), (1.0, 0.0), (-1.0, -0.0), (float("nan"), 0.0))
GREATEST = ({-1, 1}, {1}, {-1}, set(), {-1}, set())
LEAST = ({-1, 1}, {1}, {-1}, {1}, set(), set())

EXTREMES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[set[int], ...]]] = {
    "amax": (lambda x: torch.amax(x, 1), GREATEST),
    "max": (lambda x: torch.max(x, 1)[0], GREATEST),
    "maximum": (lambda x: torch.maximum(x[:, 0], x[:, 1]), GREATEST),
    "clamp": (lambda x: torch.clamp(x[:, 0], min=x[:, 1]), GREATEST),
    "amin": (lambda x: torch.amin(x, 1), LEAST),
    "minimum": (lambda x: torch.minimum(x[:, 0], x[:, 1]), LEAST),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXTREMES)
def test_ties_have_either_sign(name: str, dtype: torch.dtype) -> None:
    function, signs = EXTREMES[name]
    found: list[set[int]] = [set() for _ in ROWS]
    for seed in range(16):
        with Tied(seed):
            result = function(torch.tensor(ROWS, dtype=dtype)).double()
        for row, value in zip(found, result, strict=True):
            row |= {-1 if torch.signbit(value) else 1} if value == 0 else set()
    assert tuple(found) == signs
