"""Kernels at which rewriting loops, writing in place or leaving masks out could go wrong, against the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl


@triton.jit
def old_value_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    now = tl.load(x + places)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(n):
        new = now * 2 + 1
        biggest = tl.max(new)
        total += now * biggest
        now = new
    tl.store(out + places, total + now)


@triton.jit
def turned_kernel(x, out, n, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(x + rows * BLOCK + columns)
    for _ in range(n):
        b = a * 2
        a = b + tl.trans(a)
    tl.store(out + rows * BLOCK + columns, a)


@triton.jit
def exchanged_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    a = tl.load(x + places)
    b = tl.load(x + BLOCK + places)
    c = a + b
    for _ in range(n):
        a, b, c = b, c + 1, a
    tl.store(out + places, a * 100 + b * 10 + c)


@triton.jit
def scattered_mask_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=(places * 31) % BLOCK < n, other=-1.0))


@triton.jit
def backwards_kernel(x, out, n, BLOCK: tl.constexpr):
    pointers = x + n * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(n):
        pointers -= BLOCK
        numbers = numbers - 3
        total = total * 2 + tl.load(pointers) * numbers
    tl.store(out + tl.arange(0, BLOCK), total)


@triton.jit
def started_sum_kernel(x, out, n, BLOCK: tl.constexpr):
    total = tl.full((BLOCK,), 3.0, tl.float32)
    for i in range(n):
        total += tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(total))


@triton.jit
def watched_sum_kernel(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        row = tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
        tl.store(out + 1 + i * BLOCK + tl.arange(0, BLOCK), total)
        total += row
    tl.store(out, tl.sum(total))


@triton.jit
def kept_sum_kernel(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        total += tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + 1 + tl.arange(0, BLOCK), total)
    tl.store(out, tl.sum(total))


KERNELS = [
    old_value_kernel, turned_kernel, exchanged_kernel, scattered_mask_kernel, backwards_kernel, started_sum_kernel,
    watched_sum_kernel, kept_sum_kernel,
]  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.fn.__name__))
def test_code_gives_what_the_interpreter_gives(kernel: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(-4, 5, (32 * 32 * 4,)).float()
    found = []
    for code in ("0", "1"):
        monkeypatch.setenv("STATOR_TILE_CODE", code)
        kernel.cache.clear()
        out = torch.full((32 * 32 * 4,), 7.0)
        kernel[(1,)](x, out, n, BLOCK=32)
        found.append(out)
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=0)
