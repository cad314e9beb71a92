"""The kernels that are measured compute what PyTorch computes."""

from __future__ import annotations

import pytest

from benchmarks import tile


def test_results_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZE": 10_001, "ROWS": 5, "COLUMNS": 1000, "SIDE": 128, "SECONDS": 0.0}.items():
        monkeypatch.setattr(tile, name, value)
    found = {case.name: tile.measured(case) for case in tile.cases()}
    assert list(found)[:2] == ["add 10,001", "softmax 5×1000"] and len(found) == 7
    assert all(ms > 0 for both in found.values() for ms in both)
