"""Large results are ordinary tensors, whatever the system says to the advice."""

from __future__ import annotations

import ctypes
import mmap
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stator
from stator._native import ask_for_huge_pages
from stator.runtime import pages

HUGE = 2 << 20
SMAPS = Path("/proc/self/smaps")
smaps = pytest.mark.skipif(not SMAPS.exists(), reason="no table of what was asked for")


@pytest.mark.parametrize("size, stride", [((3, 5), (5, 1)), ((1500, 1000), (1, 1500)), ((0, 4), (4, 1)), ((), ())])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_large_result(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    made = pages.large(size, stride, dtype)
    assert made.shape == size and made.stride() == stride and made.dtype is dtype
    assert (made.fill_(3) == 3).all() and made.untyped_storage().resizable()


def test_memory_that_nobody_can_advise_on_is_left_alone() -> None:
    """Less than a huge page inside, or too little: no system is asked, and no byte is written."""
    data = bytearray(b"\x07" * (5 << 20))
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    for start, length in ((address, 0), (address, 1 << 20), (-(-address // HUGE) * HUGE + 8, HUGE)):
        ask_for_huge_pages(start, length)
    assert data.count(7) == len(data)


@smaps
def test_the_advice_stays_inside_the_memory() -> None:
    for attempt in range(3):  # nothing is asked for in the second after a slow one
        time.sleep(1.1 * attempt)
        memory = mmap.mmap(-1, 32 << 20)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        first, last = address + (3 << 20) + 64, address + (29 << 20) - 64
        ask_for_huge_pages(first, last - first)
        advised = [(a, b) for a, b, flags in _mapped() if "hg" in flags and address <= a and b <= address + (32 << 20)]
        if advised:
            assert all(first <= a and b <= last and a % HUGE == 0 for a, b in advised)
            return
    pytest.fail("no huge page was asked for")


@smaps
def test_results_of_graphs_are_in_huge_pages() -> None:
    """The first huge page of a large result is asked for, unless one was slow within the last second."""
    double = stator.compile(lambda x: x * 2, options={"reuse_results": False})
    made = []
    for attempt in range(3):
        time.sleep(1.1 * attempt)
        made.append(double(torch.ones(16 << 20)))
        start = -(-made[-1].data_ptr() // HUGE) * HUGE
        assert (made[-1] == 2).all()
        if any(a <= start < b and "hg" in flags for a, b, flags in _mapped()):
            return
    pytest.fail("no huge page was asked for")


def _mapped() -> Iterator[tuple[int, int, list[str]]]:
    """What is mapped: from, to, and what the system was told of it."""
    start = end = 0
    for line in SMAPS.read_text(encoding="utf-8").splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            start, end = int(place[1], 16), int(place[2], 16)
        elif line.startswith("VmFlags:"):
            yield start, end, line.split()[1:]
