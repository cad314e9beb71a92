"""Kernels whose passes are looked at."""

from __future__ import annotations

from collections.abc import Callable

import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.frontend.kernel import Compiled
from tests.tile.kernels.test_attention import _attn_fwd

F16, F32 = torch.float16, torch.float32


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def scaled_rows(x, w, out, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    places = rows[:, None] * stride + columns[None, :]
    tile = tl.load(x + places).to(tl.float32)
    mean = tl.sum(tile, 1) / COLUMNS
    tl.store(out + places, (tile - mean[:, None]) * tl.load(w + columns)[None, :])


@triton.jit
def product(a, b, c, inner, stride_a, stride_b, stride_c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    terms = tl.arange(0, K)
    left = a + rows[:, None] * stride_a + terms[None, :]
    right = b + terms[:, None] * stride_b + columns[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, inner, K):
        acc = tl.dot(tl.load(left), tl.load(right), acc, input_precision="ieee")
        left += K
        right += K * stride_b
    tl.store(c + rows[:, None] * stride_c + columns[None, :], acc)


@triton.jit
def one_turn(a, b, c, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, N)
    acc = tl.zeros((N, N), tl.float32)
    for start in tl.range(0, K, K):
        terms = start + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * K + terms[None, :])
        acc = tl.dot(left, tl.load(b + terms[:, None] * N + rows[None, :]), acc)
    tl.store(c + rows[:, None] * N + rows[None, :], acc)


@triton.jit
def products(a, b, c, count, inner, N: tl.constexpr, K: tl.constexpr):
    """Several products of matrices that lie one behind the other, as persistent kernels have them."""
    rows = tl.arange(0, N)
    terms = tl.arange(0, K)
    for i in range(count):
        left = a + i * N * inner + rows[:, None] * inner + terms[None, :]
        right = b + i * N * inner + terms[:, None] * N + rows[None, :]
        acc = tl.zeros((N, N), tl.float32)
        for _ in range(0, inner, K):
            acc = tl.dot(tl.load(left), tl.load(right), acc)
            left += K
            right += K * N
        tl.store(c + i * N * N + rows[:, None] * N + rows[None, :], acc)


@triton.jit
def transposed(x, out, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(tile))


def attention() -> Compiled:
    """Attention forward as users write it, of rows of 64."""
    strides = [2 * 1024 * 64, 1024 * 64, 64, 1]
    return _attn_fwd.warmup(
        F16, F16, F16, 0.5, F32, F16, *strides * 4, 2, 2, N_CTX=1024, HEAD_DIM=64, BLOCK_M=128, BLOCK_N=64, STAGE=1,
        grid=(1,),
    ).compiled  # fmt: skip


PROGRAMS: dict[str, Callable[[], Compiled]] = {
    "add": lambda: add.warmup(F32, F32, F32, 4096, BLOCK=1024, grid=(1,)).compiled,
    "scaled_rows": lambda: scaled_rows.warmup(F16, F32, F32, 64, ROWS=16, COLUMNS=64, grid=(1,)).compiled,
    "product": lambda: product.warmup(F16, F16, F32, 64, 64, 32, 32, M=32, N=32, K=32, grid=(1,)).compiled,
    "product_f32": lambda: product.warmup(F32, F32, F32, 64, 64, 32, 32, M=32, N=32, K=16, grid=(1,)).compiled,
    "products": lambda: products.warmup(F16, F16, F32, 4, 64, N=32, K=16, grid=(1,)).compiled,
    "one_turn": lambda: one_turn.warmup(F16, F16, F32, N=32, K=64, grid=(1,)).compiled,
    "transposed": lambda: transposed.warmup(F32, F32, M=32, N=32, grid=(1,)).compiled,
    "attention": attention,
}
