"""Scatters into copies of tensors whose elements share memory: eager keeps the strides, so a write is seen twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stator

Function = Callable[[torch.Tensor], torch.Tensor]

OVERLAPPING: dict[str, Function] = {
    "windows": lambda x: x.unfold(0, 2, 1),
    "windows of an intermediate": lambda x: torch.neg(x).unfold(1, 3, 2),
    "permuted windows": lambda x: x.unfold(0, 2, 1).permute(3, 1, 0, 2),
    "strided": lambda x: (x * 2).as_strided((3, 3, 2), (2, 1, 1)),
}
SCATTERS: dict[str, Function] = {
    "select": lambda v: torch.select_scatter(v, v.select(0, 0) + 1, 0, -1),
    "slice": lambda v: torch.slice_scatter(v, v[1:] * 2, 0, 0, v.shape[0] - 1),
    "diagonal": lambda v: torch.diagonal_scatter(v, v.diagonal() + 1),
    "strided": lambda v: torch.as_strided_scatter(v, v.flatten()[:4].view(2, 2) * 3, (2, 2), (1, 2)),
}


@pytest.mark.parametrize(("dtype", "dynamic"), [(torch.float32, False), (torch.complex64, True)])
@pytest.mark.parametrize("scatter", SCATTERS)
@pytest.mark.parametrize("view", OVERLAPPING)
def test_scatters_write_to_memory_that_elements_share(
    view: str, scatter: str, dtype: torch.dtype, dynamic: bool
) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        written = SCATTERS[scatter](OVERLAPPING[view](x))
        return written, torch.cat([written, written])

    x = torch.randn(3, 4, 5, dtype=dtype)
    compiled = stator.compile(function, fullgraph=True, dynamic=dynamic, options={"strict": True})
    for got, want in zip(compiled(x), function(x), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)
