"""What tests of passes ask for by name."""

from __future__ import annotations

import pytest

from stator.targets.cpu import record


@pytest.fixture
def matrix_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that multiplies bfloat16 faster than float32."""
    monkeypatch.setattr(record, "multiplies_halves_slowly", lambda: False)


@pytest.fixture(autouse=True)
def _no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is a library's call elsewhere is one here too, unless a test asks for the processor's tiles."""
    monkeypatch.setattr(record, "has_tiles", lambda: False)
