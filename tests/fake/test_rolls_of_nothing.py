"""`roll` of tensors without elements: strided as in eager, by the shape rule and by the decomposition."""

from __future__ import annotations

import pytest
import torch

import stator

NOTHING = {
    "a row with gaps": lambda: torch.empty(0, 4).diagonal(),
    "transposed": lambda: torch.empty(0, 4).t(),
    "stepped": lambda: torch.empty(0, 4)[:, ::2],
    "with gaps": lambda: torch.empty(3, 0, 4)[:, :, 1],
}


def rolled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.roll(1), x.roll(1, 0)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", NOTHING)
def test_strides(name: str, backend: str) -> None:
    x = NOTHING[name]()
    ours = stator.compile(rolled, backend=backend, dynamic=True)(x)
    assert [t.stride() for t in ours] == [t.stride() for t in rolled(x)]
