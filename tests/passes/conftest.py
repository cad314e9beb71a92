"""What tests of passes ask for by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stator.base.device import Device
from stator.targets.cpu import record


@pytest.fixture
def matrix_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that multiplies bfloat16 faster than float32."""
    monkeypatch.setattr(record, "multiplies_halves_slowly", lambda: False)


@pytest.fixture(autouse=True)
def _no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is a library's call elsewhere is one here too, unless a test asks for the processor's tiles."""
    monkeypatch.setattr(record, "has_tiles", lambda: False)


@pytest.fixture
def innermost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that convolves so, and starts kernels for nothing, so that small images pay for copies."""
    read = record.read

    def found(device: str = "cpu", threads: int = 0) -> Device:
        plain = read(device, threads)
        return replace(plain, convolves_innermost=True, packed_convolutions=False, depthwise_taps=0, launch_cost=0.0)

    monkeypatch.setattr(record, "read", found)
