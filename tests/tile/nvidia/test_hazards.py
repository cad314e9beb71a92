"""Where the code of kernels waits for all threads because of global memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from tests.tile.nvidia.emulated import text_of

F32 = torch.float32
BLOCK = 256


@triton.jit
def copied(x, y, n, BLOCK: tl.constexpr):
    """Both stores go by the same pointers."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))
    tl.store(y + at, tl.load(x + (at ^ 32)))


@triton.jit
def in_turns(x, y, n, BLOCK: tl.constexpr):
    """What a turn writes the next one may write again."""
    at = tl.arange(0, BLOCK)
    for i in range(n):
        tl.store(y + i * BLOCK + at, tl.load(x + i * BLOCK + at))


@triton.jit
def read_back(x, y, n, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1)
    tl.store(y + tl.arange(0, BLOCK), tl.load(at))


@triton.jit
def neighbours(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))
    tl.store(y + at, tl.load(x + (at ^ 32)))


@triton.jit
def scalar(x, y, n, BLOCK: tl.constexpr):
    tl.store(x, 1.0)
    tl.store(y + tl.arange(0, BLOCK), tl.load(x) + tl.zeros((BLOCK,), tl.float32))


@triton.jit
def few(x, y, n, BLOCK: tl.constexpr):
    """So few elements that several threads have each."""
    at = x + tl.arange(0, 16)
    tl.store(at, tl.zeros((16,), tl.float32))
    tl.store(y + tl.arange(0, 16), tl.load(at))


@triton.jit
def swapped(x, y, n, BLOCK: tl.constexpr):
    """What is written through one pointer is read through the other a turn later."""
    at = tl.arange(0, BLOCK)
    a, b = x, y
    for _ in range(n):
        tl.store(a + at, tl.load(b + (at ^ 32)))
        a, b = b, a


@triton.jit
def branch(x, y, n, BLOCK: tl.constexpr):
    """Whether the branch, in which threads wait, is taken is not known."""
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))
    if n > 3:
        tl.store(y + at, tl.load(x + (at ^ 32)))
    tl.store(x + at, tl.load(x + (at ^ 64)))


@triton.jit
def both_branches(x, y, n, BLOCK: tl.constexpr):
    """All have waited, whichever branch was taken."""
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))
    if n > 3:
        tl.store(y + at, tl.load(x + (at ^ 32)))
    else:
        tl.store(y + at, tl.load(x + (at ^ 128)))
    if tl.load(x + 3) > 0:
        tl.device_assert(n > 0)


@triton.jit
def loop(x, y, n, BLOCK: tl.constexpr):
    """Whether the loop, in which threads wait, has a turn is not known."""
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))
    for _ in range(n):
        tl.store(y + at, tl.load(x + (at ^ 32)))
    tl.store(x + at, tl.load(x + (at ^ 64)))


@triton.jit
def until(x, y, n, BLOCK: tl.constexpr):
    """The test of a `while` comes at least once, and what it reads has been written."""
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))
    while tl.load(x + 5) > n:
        n += tl.load(x + 6).to(tl.int32)
    tl.store(y + at, tl.load(x + (at ^ 128)))


#: Kernels and how often their text waits for all threads.
COUNTS: list[tuple[Any, int]] = [
    (copied, 0), (in_turns, 1), (read_back, 0), (neighbours, 1), (scalar, 1), (few, 1), (swapped, 2), (branch, 3),
    (both_branches, 2), (loop, 3), (until, 1),
]  # fmt: skip


def waits(kernel: Any) -> int:
    compiled = kernel.warmup(F32, F32, 1000, BLOCK=BLOCK, grid=(1,), num_warps=8).compiled
    text = text_of(compiled.module, kernel.__name__).llvm
    return sum("call void @llvm.nvvm.barrier" in line for line in text.splitlines())


@pytest.mark.parametrize(("kernel", "count"), COUNTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_threads_wait_where_another_may_have_touched_what_they_touch(kernel: Any, count: int) -> None:
    assert waits(kernel) == count
