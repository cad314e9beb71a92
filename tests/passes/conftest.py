"""What tests of passes ask for by name."""

from __future__ import annotations

import pytest

from stator.targets.cpu import record


@pytest.fixture
def matrix_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that multiplies bfloat16 faster than float32."""
    monkeypatch.setattr(record, "multiplies_halves_slowly", lambda: False)
