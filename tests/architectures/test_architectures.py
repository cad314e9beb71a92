"""A few architectures of each family, whole and right; the command `python -m tests.architectures` runs them all."""

from __future__ import annotations

import pytest

from tests.architectures.catalogue import TABLE
from tests.architectures.check import MODES, judge

#: One of each family, of different make.
CHOSEN = ("qwen3", "mixtral", "bart", "swin", "hubert", "clip")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CHOSEN)
def test_whole_and_right(name: str, mode: str) -> None:
    verdict = judge(name, mode)
    assert verdict.whole and not verdict.wrong, verdict


def test_families() -> None:
    assert len(TABLE) >= 40
    assert {entry.family for entry in TABLE.values()} == {"text", "vision", "audio", "multi-modal", "time series"}
