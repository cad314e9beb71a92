"""Kernels that are begun while the one before them ends wait for it before they touch memory, whatever they compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.base.device import Device
from stator.codegen import triton
from stator.loop.kernel import Schedule
from stator.targets import typical
from stator.targets.cuda.binaries import OWN, Source, launches, texts
from stator.tile.nvidia.generated import compile_job
from tests.codegen import hopper, tiled
from tests.codegen.test_attention import FLASH, Graph, heads

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "points": (lambda x: x.relu(), (torch.randn(33, 5),)),
    "rows": (lambda x: x.softmax(-1), (torch.randn(33, 70),)),
    "columns": (lambda x: x.sum(0), (torch.randn(4096, 70),)),
    "product": (lambda x, y: F.gelu(x @ y), (torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16())),
    "nothing": (lambda x: x + 1, (torch.randn(0, 3),)),
}


def scheduled(name: str, device: Device) -> Schedule:
    if name == "attention":
        graph = Graph()
        node = graph.call(FLASH, *[graph.given(heads(2, 4, 100, 64, torch.bfloat16)) for _ in range(3)], 0.0, True)
        return graph.scheduled([graph.part(node, 0), graph.part(node, 1)])
    program, inputs = PROGRAMS[name]
    return tiled.scheduled(program, *inputs, device=device)[0]


def emitted(name: str, overlaps: bool) -> str:
    device = replace(typical("cuda"), overlaps=overlaps)
    made = scheduled(name, device)
    return triton.emit(made.kernels, device, made.names)


@pytest.mark.parametrize("name", [*PROGRAMS, "attention"])
def test_the_wait_is_the_first_that_a_kernel_does(name: str) -> None:
    text = emitted(name, overlaps=True)
    for kernel, launch in launches(text).items():
        (first,) = re.findall(rf"^def {kernel}\(.*\):\n    (.*)$", text, re.MULTILINE)
        assert first == "_after_previous()" and launch["options"]["launch_pdl"] is True


@pytest.mark.parametrize("name", [*PROGRAMS, "attention"])
def test_no_kernel_waits_where_none_is_begun_early(name: str) -> None:
    text = emitted(name, overlaps=False)
    for kernel, launch in launches(text).items():
        assert "launch_pdl" not in launch["options"]
        assert "_after_previous" not in text[text.index(f"def {kernel}(") :]


@pytest.mark.parametrize("name", [*PROGRAMS, "attention"])
def test_both_compilers_keep_the_wait_in_front_of_all_accesses(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody uses what the instruction gives."""
    monkeypatch.setenv("STATOR_TILE_DUMP", str(tmp_path))
    text, found = emitted(name, overlaps=True), {}
    for kernel, launch in launches(text).items():
        source = Source(kernel, texts(text, [kernel])[kernel], launch, ("cuda", 90, 32), OWN)
        compile_job(job := source.job(0))
        found[f"stator's {kernel}"] = (tmp_path / f"{job['name']}.ptx").read_text()
    if find_spec("triton") is not None:
        made = scheduled(name, typical("cuda"))
        found |= {f"Triton's {i}": stages["ptx"] for i, stages in enumerate(hopper.built(made.kernels))}
    for kernel, ptx in found.items():
        first = min([at.start() for at in re.finditer(r"\b(ld|st|atom|red)\.global|cp\.async", ptx)], default=len(ptx))
        assert 0 < ptx.find("griddepcontrol.wait") < first, kernel
