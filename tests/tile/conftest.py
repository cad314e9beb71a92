"""Fixtures of the tile language: each kernel is run in both ways, as tile IR and as its text."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["module", "text"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How kernels run."""
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1" if request.param == "text" else "0")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return str(request.param)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are interpreted unless a test wants code: tests provoke accesses that only the interpreter checks."""
    monkeypatch.setenv("STATOR_TILE_CODE", "0")
