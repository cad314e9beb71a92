"""Well-known kernels run with no refusal: tile IR interpreted, their text directly, machine code, a GPU's code, emulated and there."""

from __future__ import annotations

import sys

import pytest

from tests.tile.nvidia import emulated, on_gpu


@pytest.fixture(params=["module", "text", "code", "threads", pytest.param("gpu", marks=pytest.mark.gpu)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, interpreted: None) -> str:
    """How kernels run."""
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1" if request.param == "text" else "0")
    monkeypatch.setenv("STATOR_TILE_CODE", "1" if request.param in ("code", "threads", "gpu") else "0")
    if request.param in ("threads", "gpu"):
        made_by = emulated if request.param == "threads" else on_gpu
        monkeypatch.setattr(sys.modules["stator.tile.jit"], "code_of", made_by.code_of)
        request.getfixturevalue("few_objects")  # both look for the tensors that there are, at each launch
    monkeypatch.setenv("STATOR_TILE_STRICT", "1")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return str(request.param)
