"""Well-known kernels run in three ways: tile IR interpreted, their text directly, and machine code, with no refusal."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["module", "text", "code"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, interpreted: None) -> str:
    """How kernels run."""
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1" if request.param == "text" else "0")
    monkeypatch.setenv("STATOR_TILE_CODE", "1" if request.param == "code" else "0")
    monkeypatch.setenv("STATOR_TILE_STRICT", "1")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return str(request.param)
