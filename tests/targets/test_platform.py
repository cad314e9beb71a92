"""What differs between makers of GPUs: which it is, what is compiled for, and the text of kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stator.codegen import triton
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets.cuda import platform
from stator.targets.cuda.platform import AMD, INTEL, NVIDIA, PLATFORMS
from stator.targets.cuda.record import typical
from tests.cases.graphs import trace


@pytest.mark.parametrize(("version", "found"), [(None, NVIDIA), ("7.1.25424", AMD)])
def test_the_maker_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch, version: str | None, found: object) -> None:
    monkeypatch.setattr(torch.version, "hip", version)
    platform.current.cache_clear()
    try:
        assert platform.current() is found
    finally:
        platform.current.cache_clear()


def test_architectures() -> None:
    assert NVIDIA.architecture(SimpleNamespace(major=9, minor=0)) == 90
    assert AMD.architecture(SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")) == "gfx942"


def test_only_numbers_of_threads_and_instructions_differ() -> None:
    gm, _ = trace(lambda x: x.to(torch.int32).softmax(0, torch.float32), [torch.randn(40, 30)], DECOMPOSITIONS)
    texts = {}
    for name, made in PLATFORMS.items():
        device = typical(cores=100, platform=made)
        assert device.kind == made.kind and device.warp == made.warp
        texts[name] = triton.emit(schedule(lower(gm, "case", device), device).kernels, device)
    assert "cvt.rzi.s32.f32" in texts["cuda"] and "inline_asm" not in texts["hip"] + texts["xpu"]
    kernels = {name: text[text.index("def k0(") :].partition("LAUNCHES")[0] for name, text in texts.items()}
    assert kernels["cuda"].replace("    _after_previous()\n", "") == kernels["hip"] == kernels["xpu"]


def test_threads_are_warps_of_the_maker() -> None:
    assert {made.backend: typical(platform=made).lanes for made in (NVIDIA, AMD, INTEL)} == {
        "cuda": 128, "hip": 256, "xpu": 128,
    }  # fmt: skip
