"""Kernels of graphs for a GPU, compiled by the tile language."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stator.codegen import triton
from stator.targets import typical
from stator.targets.cuda import binaries
from stator.tile.nvidia.generated import compile_job
from tests.codegen import tiled


def sources(fn: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[binaries.Source]:
    made, _ = tiled.scheduled(fn, *inputs)
    text = triton.emit(made.kernels, typical("cuda"), made.names, True, {})
    found, launches = binaries.texts(text, made.names), binaries.launches(text)
    return [binaries.Source(name, found[name], launches[name], ("cuda", 90, 32), binaries.OWN) for name in made.names]


@pytest.mark.parametrize("alternative", [0, binaries.ANYWHERE | binaries.WIDE])
def test_kernels_become_binaries_whose_parameters_lie_as_launches_pack_them(alternative: int) -> None:
    def rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1)

    for source in sources(rows, torch.randn(128, 256).half(), torch.randn(256, 512).half()):
        made = compile_job(source.job(alternative))
        found = binaries.Binary(**made)
        options = source.launch["options"]
        assert found.name == source.name and found.threads == 32 * options.get("num_warps", 4)
        assert found.image and found.shared >= 0 and found.clusters == 1
        assert binaries.Binary.from_bytes(found.to_bytes()) == found
