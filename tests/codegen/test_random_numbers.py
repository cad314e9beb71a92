"""Random numbers in Triton's text are those of the reference, bit by bit where they are uniform."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import stator.prims  # noqa: F401  (defines the operator)
from tests.codegen import tiled


@pytest.mark.parametrize("seed", [0, 1, 123456789012345, -987654321, -(2**63), 2**63 - 1])
def test_numbers_of_a_seed(seed: int, tmp_path: Path) -> None:
    def program(seeds: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        uniform, normal = [
            torch.ops.stator.random.default(seeds, 0, [4, 250], kind=kind, dtype=torch.float32, device=x.device)
            for kind in ("uniform", "normal")
        ]
        return uniform, normal

    inputs = torch.tensor([seed]), torch.zeros(1)
    made, given = tiled.scheduled(program, *inputs)
    (uniform, normal), wanted = tiled.run(made, given, tmp_path), program(*inputs)
    assert torch.equal(uniform, wanted[0])
    assert uniform.min() >= 0 and uniform.max() < 1 and uniform.unique().numel() > 990
    torch.testing.assert_close(normal, wanted[1], rtol=1e-5, atol=1e-6)
