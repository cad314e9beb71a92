"""Large results are ordinary tensors, whatever the system says to the advice."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

import stator
from stator.runtime import pages


@pytest.mark.parametrize("size, stride", [((3, 5), (5, 1)), ((1500, 1000), (1, 1500)), ((0, 4), (4, 1)), ((), ())])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_large_result(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    made = pages.large(size, stride, dtype)
    assert made.shape == size and made.stride() == stride and made.dtype is dtype
    assert (made.fill_(3) == 3).all() and made.untyped_storage().resizable()


def test_a_system_without_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> None:
        raise OSError

    pages._advise.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(pages.ctypes, "CDLL", missing)
        assert pages.large((1 << 20, 2), (2, 1), torch.float32).zero_().sum() == 0
    pages._advise.cache_clear()


def test_the_advice_stays_inside_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(pages, "_advise", lambda: lambda start, length, advice: asked.append((start, length)))
    made = pages.large((3_000_000,), (1,), torch.float32)
    pages.large((100,), (1,), torch.float32)
    ((start, length),) = asked
    assert made.data_ptr() <= start and start + length <= made.data_ptr() + 12_000_000
    assert start % (2 << 20) == 0 and length >= 8 << 20


def test_results_of_graphs_are_in_huge_pages() -> None:
    """The first huge page of a large result is asked for, unless one was slow within the last second."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("no table of what was asked for")
    double = stator.compile(lambda x: x * 2, options={"reuse_results": False})
    made = []
    for attempt in range(3):
        time.sleep(1.1 * attempt)
        made.append(double(torch.ones(16 << 20)))
        start = -(-made[-1].data_ptr() // (2 << 20)) * (2 << 20)
        assert (made[-1] == 2).all()
        if "hg" in _flags(start):
            return
    pytest.fail("no huge page was asked for")


def _flags(address: int) -> list[str]:
    """What the system was told of the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(place[1], 16) <= address < int(place[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []
