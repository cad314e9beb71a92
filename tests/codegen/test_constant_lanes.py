"""Vectors that the compiler computes: none is stored as another one.

g++ 12 with AVX-512 made one number of what is copied as bytes, and stored those of which the last lanes are zero as if
all were like the first (`raw_store` in `codegen/cpp/memory.h`).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import stator

#: Of all lanes, more than one vector of them, with a rest and without.
WIDTHS = (8, 12, 16, 33)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.int16, torch.bfloat16])
def test_ones_and_then_zeros(dtype: torch.dtype, width: int) -> None:
    def ones_first(*given: torch.Tensor) -> list[torch.Tensor]:
        return [F.pad((x <= x).to(dtype), (0, width - len(x))) for x in given]

    def zeros_first(*given: torch.Tensor) -> list[torch.Tensor]:
        return [F.pad((x <= x).to(dtype), (width - len(x), 0)) for x in given]

    given = [torch.arange(count) for count in range(1, width)]
    for function in (ones_first, zeros_first):
        compiled = stator.compile(function, fullgraph=True, options={"strict": True})
        for found, wanted in zip(compiled(*given), function(*given), strict=True):
            assert torch.equal(found, wanted), (function.__name__, found, wanted)
