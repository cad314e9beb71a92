"""Well-known kernels that multiply matrices, as users write them, against PyTorch."""

from __future__ import annotations

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.usefixtures("way")


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 16, "GROUP_SIZE_M": 2}, num_stages=3),
        triton.Config({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}, num_warps=8),
    ],
    key=["M", "N", "K"],
    do_bench=lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)
    tl.assume(stride_am > 0)
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matmul_with_grouped_order(activation: str, dtype: torch.dtype) -> None:
    a, b = torch.randn(70, 50).to(dtype), torch.randn(40, 50).to(dtype).T
    c = torch.empty(70, 40, dtype=dtype)
    matmul_kernel[lambda meta: (triton.cdiv(70, meta["BLOCK_SIZE_M"]) * triton.cdiv(40, meta["BLOCK_SIZE_N"]),)](
        a, b, c, 70, 40, 50, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation
    )
    expected = a.float() @ b.float()
    if activation:
        expected = torch.nn.functional.leaky_relu(expected)
    torch.testing.assert_close(c, expected.to(dtype))


@triton.jit
def _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + (tile_id % group_size_m)
    pid_n = (tile_id % num_pid_in_group) // group_size_m
    return pid_m, pid_n


@triton.jit
def matmul_kernel_persistent(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
):  # fmt: skip
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    k_tiles = tl.cdiv(K, BLOCK_SIZE_K)
    num_tiles = num_pid_m * num_pid_n
    tile_id_c = start_pid - NUM_SMS
    offs_k_for_mask = tl.arange(0, BLOCK_SIZE_K)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS)
        start_m = pid_m * BLOCK_SIZE_M
        start_n = pid_n * BLOCK_SIZE_N
        offs_am = start_m + tl.arange(0, BLOCK_SIZE_M)
        offs_bn = start_n + tl.arange(0, BLOCK_SIZE_N)
        offs_am = tl.where(offs_am < M, offs_am, 0)
        offs_bn = tl.where(offs_bn < N, offs_bn, 0)
        offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BLOCK_SIZE_M), BLOCK_SIZE_M)
        offs_bn = tl.max_contiguous(tl.multiple_of(offs_bn, BLOCK_SIZE_N), BLOCK_SIZE_N)
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
            a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
            b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
            a = tl.load(a_ptrs, mask=offs_k_for_mask[None, :] < K - ki * BLOCK_SIZE_K, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k_for_mask[:, None] < K - ki * BLOCK_SIZE_K, other=0.0)
            accumulator = tl.dot(a, b, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = _compute_pid(tile_id_c, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS)
        offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
        offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
        c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
        c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
        if c_ptr.dtype.element_ty == tl.float8e4nv:
            c = accumulator.to(tl.float8e4nv)
        else:
            c = accumulator.to(tl.float16)
        tl.store(c_ptrs, c, mask=c_mask)


def test_persistent_matmul() -> None:
    a, b = torch.randn(70, 40, dtype=torch.float16), torch.randn(40, 50, dtype=torch.float16)
    c = torch.empty(70, 50, dtype=torch.float16)
    matmul_kernel_persistent[(3,)](
        a, b, c, 70, 50, 40, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_SIZE_M=32, BLOCK_SIZE_N=16, BLOCK_SIZE_K=32, GROUP_SIZE_M=2, NUM_SMS=3,
    )  # fmt: skip
    torch.testing.assert_close(c, (a.float() @ b.float()).half())


@triton.jit
def grouped_matmul_kernel(
    group_a_ptrs, group_b_ptrs, group_c_ptrs, group_gemm_sizes, g_lds, group_size,
    NUM_SM: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
):  # fmt: skip
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    for g in range(group_size):
        gm = tl.load(group_gemm_sizes + g * 3)
        gn = tl.load(group_gemm_sizes + g * 3 + 1)
        gk = tl.load(group_gemm_sizes + g * 3 + 2)
        num_m_tiles = tl.cdiv(gm, BLOCK_SIZE_M)
        num_n_tiles = tl.cdiv(gn, BLOCK_SIZE_N)
        num_tiles = num_m_tiles * num_n_tiles
        while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            k = gk
            lda = tl.load(g_lds + g * 3)
            ldb = tl.load(g_lds + g * 3 + 1)
            ldc = tl.load(g_lds + g * 3 + 2)
            a_ptr = tl.load(group_a_ptrs + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(group_b_ptrs + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(group_c_ptrs + g).to(tl.pointer_type(tl.float16))
            tile_idx_in_gemm = tile_idx - last_problem_end
            tile_m_idx = tile_idx_in_gemm // num_n_tiles
            tile_n_idx = tile_idx_in_gemm % num_n_tiles
            offs_am = tile_m_idx * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
            offs_bn = tile_n_idx * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
            offs_k = tl.arange(0, BLOCK_SIZE_K)
            a_ptrs = a_ptr + offs_am[:, None] * lda + offs_k[None, :]
            b_ptrs = b_ptr + offs_k[:, None] * ldb + offs_bn[None, :]
            accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
            for kk in range(tl.cdiv(k, BLOCK_SIZE_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                a = tl.load(a_ptrs)
                b = tl.load(b_ptrs)
                accumulator += tl.dot(a, b)
                a_ptrs += BLOCK_SIZE_K
                b_ptrs += BLOCK_SIZE_K * ldb
            c = accumulator.to(tl.float16)
            offs_cm = tile_m_idx * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
            offs_cn = tile_n_idx * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
            c_ptrs = c_ptr + ldc * offs_cm[:, None] + offs_cn[None, :]
            tl.store(c_ptrs, c)
            tile_idx += NUM_SM
        last_problem_end = last_problem_end + num_tiles


@pytest.mark.usefixtures("few_objects")  # the tensors at the addresses are looked for
def test_grouped_gemm() -> None:
    sizes = [(32, 16, 16), (16, 48, 32), (16, 16, 16)]
    group_a = [torch.randn(m, k, dtype=torch.float16) for m, n, k in sizes]
    group_b = [torch.randn(k, n, dtype=torch.float16) for m, n, k in sizes]
    group_c = [torch.zeros(m, n, dtype=torch.float16) for m, n, _ in sizes]
    a_ptrs, b_ptrs, c_ptrs = [torch.tensor([t.data_ptr() for t in group]) for group in (group_a, group_b, group_c)]
    g_sizes = torch.tensor(sizes, dtype=torch.int32)
    g_lds = torch.tensor([[k, n, n] for _, n, k in sizes], dtype=torch.int32)
    grouped_matmul_kernel[(2,)](
        a_ptrs, b_ptrs, c_ptrs, g_sizes, g_lds, len(sizes),
        NUM_SM=2, BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16,
    )  # fmt: skip
    for a, b, c in zip(group_a, group_b, group_c, strict=True):
        torch.testing.assert_close(c, (a.float() @ b.float()).half())


@triton.jit
def block_pointer_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    a_block = tl.make_block_ptr(a_ptr, (M, K), (stride_am, 1), (pid_m * BM, 0), (BM, BK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, 1), (0, pid_n * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(a, b, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BK))
        b_block = b_block.advance((BK, 0))
    c_block = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, 1), (pid_m * BM, pid_n * BN), (BM, BN), (1, 0))
    tl.store(c_block, acc, boundary_check=(0, 1))


def test_matmul_with_block_pointers() -> None:
    a, b, c = torch.randn(37, 21), torch.randn(21, 29), torch.zeros(37, 29)
    block_pointer_kernel[(3, 2)](a, b, c, 37, 29, 21, 21, 29, 29, BM=16, BN=16, BK=16)
    torch.testing.assert_close(c, a @ b)


@triton.jit
def descriptor_kernel(a_desc, b_desc, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = a_desc.load([pid_m * BM, k * BK])
        b = b_desc.load([pid_n * BN, k * BK])
        acc = tl.dot(a, b.T, acc)
    tl.static_assert(a_desc.dtype == tl.float16)
    c_desc.store([pid_m * BM, pid_n * BN], acc.to(c_desc.dtype))


def test_matmul_with_tensor_descriptors() -> None:
    a, b = torch.randn(40, 24, dtype=torch.float16), torch.randn(24, 24, dtype=torch.float16)
    c = torch.zeros(40, 24, dtype=torch.float16)
    descriptors = TensorDescriptor.from_tensor(a, [16, 16]), TensorDescriptor.from_tensor(b, [16, 16])
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    descriptor_kernel[(3, 2)](*descriptors, c, 40, 24, 24, BM=16, BN=16, BK=16)
    torch.testing.assert_close(c, (a.float() @ b.float().T).half())


@triton.jit
def block_scaled_kernel(
    a_ptr, a_scale, b_ptr, b_scale, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A_FORMAT: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    inner_a = tl.arange(0, K // PACKED)
    a = tl.load(a_ptr + rows[:, None] * (K // PACKED) + inner_a[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + columns[None, :])
    groups = tl.arange(0, K // 32)
    scale_a = tl.load(a_scale + rows[:, None] * (K // 32) + groups[None, :])
    scale_b = tl.load(b_scale + columns[:, None] * (K // 32) + groups[None, :])
    c = tl.dot_scaled(a, scale_a, A_FORMAT, b, scale_b, "e5m2")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c)


@pytest.mark.parametrize("form", ["e4m3", "e2m1"])
def test_block_scaled_matmul(form: str) -> None:
    m, n, k = 16, 16, 64
    b = torch.randn(k, n).to(torch.float8_e5m2)
    scale_a, scale_b = [torch.randint(120, 134, (rows, k // 32), dtype=torch.uint8) for rows in (m, n)]
    if form == "e4m3":
        a: torch.Tensor = torch.randn(m, k).to(torch.float8_e4m3fn)
        values = a.float()
    else:
        a = torch.randint(0, 256, (m, k // 2), dtype=torch.uint8)
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        nibbles = torch.stack([a & 15, a >> 4], -1).reshape(m, k).long()
        values = table[nibbles & 7] * torch.where(nibbles >= 8, -1.0, 1.0)
    c = torch.zeros(m, n)
    block_scaled_kernel[(1,)](
        a, scale_a, b, scale_b, c, M=m, N=n, K=k, A_FORMAT=form, PACKED=2 if form == "e2m1" else 1
    )
    wide = [torch.exp2(scale.float() - 127).repeat_interleave(32, 1) for scale in (scale_a, scale_b)]
    torch.testing.assert_close(c, (values * wide[0]) @ (b.float() * wide[1].T))
