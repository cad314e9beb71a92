"""Layer norm, forward and backward, as users write it, against PyTorch."""

from __future__ import annotations

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl

pytestmark = pytest.mark.usefixtures("way")


@triton.jit
def _layer_norm_fwd_fused(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    mean = 0
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        y = x_hat * w + b
        tl.store(Y + cols, y, mask=mask)


@triton.jit
def _layer_norm_bwd_dx_fused(
    DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE_N)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = (x - mean) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.0)
    wdy = tl.where(mask, wdy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (xhat * c1 + c2)) * rstd
    tl.store(DX + cols, dx, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def _layer_norm_bwd_dwdb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    pid = tl.program_id(0)
    cols = pid * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    dw = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_SIZE_M):
        rows = i + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.0)
        db += tl.load(DB + offs, mask=mask, other=0.0)
    sum_dw = tl.sum(dw, axis=0)
    sum_db = tl.sum(db, axis=0)
    tl.store(FINAL_DW + cols, sum_dw, mask=cols < N)
    tl.store(FINAL_DB + cols, sum_db, mask=cols < N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layer_norm_forward_and_backward(dtype: torch.dtype) -> None:
    rows, columns, groups = 9, 44, 4
    x, dy = [torch.randn(rows, columns).to(dtype) for _ in range(2)]
    w, b = [torch.rand(columns).to(dtype) for _ in range(2)]
    y, dx = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = torch.empty(rows), torch.empty(rows)
    _layer_norm_fwd_fused[(rows,)](x, y, w, b, mean, rstd, x.stride(0), columns, 1e-5, BLOCK_SIZE=32, num_warps=1)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    partial_w, partial_b = [torch.zeros(groups, columns) for _ in range(2)]
    dw, db = torch.empty_like(w), torch.empty_like(b)
    _layer_norm_bwd_dx_fused[(rows,)](
        dx,
        dy,
        partial_w,
        partial_b,
        x,
        w,
        mean,
        rstd,
        locks,
        x.stride(0),
        columns,
        BLOCK_SIZE_N=64,
        GROUP_SIZE_M=groups,
    )
    _layer_norm_bwd_dwdb[lambda meta: (triton.cdiv(columns, meta["BLOCK_SIZE_N"]),)](
        partial_w, partial_b, dw, db, groups, columns, BLOCK_SIZE_M=2, BLOCK_SIZE_N=32, num_ctas=1
    )
    leaves = [t.float().requires_grad_() for t in (x, w, b)]
    expected = torch.nn.functional.layer_norm(leaves[0], (columns,), *leaves[1:], eps=1e-5)
    expected.backward(dy.float())
    torch.testing.assert_close(y, expected.detach().to(dtype))
    for given, leaf in zip((dx, dw, db), leaves, strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(given, leaf.grad.to(dtype), rtol=1e-3, atol=2e-3)
