"""Kernels of graphs for a GPU, compiled by the tile language."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
        job = source.job(alternative)
        found = binaries.Binary(**compile_job(job))
        options = source.launch["options"]
        assert found.name == job["name"] and found.threads == 32 * options.get("num_warps", 4)
        assert found.image and found.shared >= 0 and found.clusters == 1
        assert binaries.Binary.from_bytes(found.to_bytes()) == found


def test_positions_that_graphs_check_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a position out of range would read the first row, and nobody would know."""
    monkeypatch.setenv("STATOR_TILE_DUMP", str(tmp_path))
    (source,) = sources(torch.nn.functional.embedding, torch.randint(0, 100, (512,)), torch.randn(100, 64))
    assert source.launch["options"]["debug"]
    job = source.job(0)
    compile_job(job)
    assert "index out of range" in (tmp_path / f"{job['name']}.tir").read_text()
    assert "__assertfail" in (tmp_path / f"{job['name']}.ptx").read_text()


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).bfloat16()


@pytest.mark.parametrize(("alternative", "wide"), [(0, False), (binaries.ROUND, True)])
def test_sizes_that_are_multiples_of_a_vector_are_known_to_be(
    alternative: int, wide: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATOR_TILE_DUMP", str(tmp_path))
    made, *_ = tiled.symbolic(_softmax, [torch.randn(64, 96).bfloat16()], {(0, 0), (0, 1)})
    text = triton.emit(made.kernels, typical("cuda"), made.names, True, {})
    (name,) = made.names
    launch = binaries.launches(text)[name]
    assert launch["rounds"]
    source = binaries.Source(name, binaries.texts(text, [name])[name], launch, ("cuda", 90, 32), binaries.OWN)
    job = source.job(alternative)
    compile_job(job)
    found = (tmp_path / f"{job['name']}.ptx").read_text()
    assert (".v2.b32" in found) == wide  # four elements at a time, or one
