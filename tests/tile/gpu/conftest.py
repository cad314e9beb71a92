"""Kernels of other tests run thread by thread: launches lower a kernel and simulate its threads."""

from __future__ import annotations

import pytest

from stator.tile import launch
from tests.tile.gpu.simulated import run_threads


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> str:
    """How kernels run."""
    monkeypatch.setattr(launch, "run_module", run_threads)
    for name in ("STATOR_TILE_INTERPRET", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATOR_TILE_CODE", "0")
    return "threads"
