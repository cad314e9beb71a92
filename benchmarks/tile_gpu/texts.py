"""Kernels as users write them, for whichever language `triton` and `tl` are: this file is imported once for each."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(out, x, stride, columns, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    given = tl.load(x + row * stride + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    above = tl.exp(given - tl.max(given, axis=0))
    tl.store(out + row * stride + offsets, above / tl.sum(above, axis=0), mask=mask)


@triton.jit
def layer_norm_kernel(x, out, weight, bias, stride, columns, eps, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    given = tl.load(x + row * stride + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(given, axis=0) / columns
    apart = tl.where(mask, given - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, axis=0) / columns + eps)
    w, b = tl.load(weight + offsets, mask=mask), tl.load(bias + offsets, mask=mask)
    tl.store(out + row * stride + offsets, apart * scale * w + b, mask=mask)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    given = tl.load(x + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out + offsets, tl.where(keep, given / (1 - p), 0.0), mask=mask)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * columns
    first = pid // in_group * GROUP
    size = min(rows - first, GROUP)
    pid_m, pid_n = first + pid % in_group % size, pid % in_group // size
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a + offs_m[:, None] * am + offs_k[None, :] * ak
    b_ptrs = b + offs_k[:, None] * bk + offs_n[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(left, right, acc)
        a_ptrs += BK * ak
        b_ptrs += BK * bk
    offs_cm, offs_cn = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    places = c + offs_cm[:, None] * cm + offs_cn[None, :] * cn
    tl.store(places, acc.to(c.dtype.element_ty), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def attention_kernel(
    q, k, v, out, scale, stride_h, stride_m, LENGTH, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    offs_m, offs_n, offs_d = block * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    base = head * stride_h
    queries = tl.load(q + base + offs_m[:, None] * stride_m + offs_d[None, :])
    k_ptrs = k + base + offs_n[None, :] * stride_m + offs_d[:, None]
    v_ptrs = v + base + offs_n[:, None] * stride_m + offs_d[None, :]
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.full((BM,), 1.0, tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    factor = scale * 1.44269504
    end = LENGTH
    if CAUSAL:
        end = (block + 1) * BM
    for start in range(0, end, BN):
        start = tl.multiple_of(start, BN)
        keys = tl.load(k_ptrs + start * stride_m)
        scores = tl.dot(queries, keys) * factor
        if CAUSAL:
            scores = tl.where(offs_m[:, None] >= start + offs_n[None, :], scores, -1.0e6)
        above = tl.maximum(most, tl.max(scores, 1))
        p = tl.math.exp2(scores - above[:, None])
        alpha = tl.math.exp2(most - above)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        values = tl.load(v_ptrs + start * stride_m)
        acc = tl.dot(p.to(tl.float16), values, acc)
        most = above
    acc = acc / total[:, None]
    tl.store(out + base + offs_m[:, None] * stride_m + offs_d[None, :], acc.to(tl.float16))
