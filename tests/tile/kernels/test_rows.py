"""Well-known kernels over vectors and rows, as users write them, against PyTorch."""

from __future__ import annotations

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.language.extra import libdevice

pytestmark = pytest.mark.usefixtures("way")


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.float64]
)
@pytest.mark.parametrize("n", [1, 31, 128, 130])
def test_vector_add(dtype: torch.dtype, n: int) -> None:
    x, y = [(torch.randn(n) * 50).to(dtype) for _ in range(2)]
    output = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, output, n, BLOCK_SIZE=64)
    assert torch.equal(output, x + y)


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float("inf"))
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx * output_row_stride
        output_ptrs = output_row_start_ptr + col_offsets
        tl.store(output_ptrs, softmax_output, mask=mask)


@pytest.mark.parametrize(("rows", "columns"), [(7, 33), (4, 64), (1, 5)])
def test_fused_softmax(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns)
    y = torch.empty_like(x)
    size = triton.next_power_of_2(columns)
    softmax_kernel[(3, 1, 1)](y, x, x.stride(0), y.stride(0), rows, columns, BLOCK_SIZE=size, num_stages=2)
    torch.testing.assert_close(y, x.softmax(1))


@triton.jit
def _dropout(x_ptr, x_keep_ptr, output_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.load(x_keep_ptr + offsets, mask=mask)
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


@triton.jit
def _seeded_dropout(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    random = tl.rand(seed, offsets)
    x_keep = random > p
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


def test_low_memory_dropout() -> None:
    x = torch.randn(100)
    keep = (torch.rand(100) > 0.5).to(torch.int32)
    output = torch.empty_like(x)
    _dropout[(2,)](x, keep != 0, output, 100, 0.5, BLOCK_SIZE=64)
    torch.testing.assert_close(output, torch.where(keep != 0, x / 0.5, 0.0))
    results = []
    for seed in (123, 123, 512):
        _seeded_dropout[(2,)](x, output, 100, 0.25, seed, BLOCK_SIZE=64)
        results.append(output.clone())
        kept = output != 0
        torch.testing.assert_close(output[kept], (x / 0.75)[kept], rtol=3e-7, atol=0)  # `/` may be an ulp off
        assert 50 < kept.sum() < 95
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@triton.jit
def asin_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x = libdevice.asin(x)
    tl.store(y_ptr + offsets, x, mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_libdevice_functions(dtype: torch.dtype) -> None:
    x = torch.rand(98, dtype=dtype)
    y = torch.zeros_like(x)
    asin_kernel[(4,)](x, y, 98, BLOCK_SIZE=32)
    torch.testing.assert_close(y, torch.asin(x))


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, lse_ptr, stride, n_cols, ignore_index, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    if label == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        return
    best = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * stride + columns, mask=columns < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(best, tl.max(x))
        total = total * tl.exp(best - new) + tl.sum(tl.exp(x - new))
        best = new
    lse = best + tl.log(total)
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, lse - tl.load(logits_ptr + row * stride + label).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(dtype: torch.dtype) -> None:
    logits = torch.randn(6, 75).to(dtype)
    labels = torch.tensor([3, 74, -100, 0, 12, -100])
    loss, lse = torch.full((6,), 7.0), torch.zeros(6)
    cross_entropy_kernel[(6,)](logits, labels, loss, lse, logits.stride(0), 75, -100, BLOCK=32)
    expected = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    torch.testing.assert_close(loss, expected)


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + columns, mask=mask)
    tl.store(y_ptr + row * stride + columns, (x * scale).to(y_ptr.dtype.element_ty) * w, mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rms_norm(dtype: torch.dtype) -> None:
    x, w = torch.randn(5, 48).to(dtype), torch.randn(48).to(dtype)
    y = torch.empty_like(x)
    rms_norm_kernel[(5,)](x, w, y, x.stride(0), 48, 1e-6, BLOCK=64)
    expected = torch.nn.functional.rms_norm(x.float(), (48,), eps=1e-6).to(dtype) * w
    torch.testing.assert_close(y, expected)


@triton.jit
def top_k_kernel(x_ptr, values_ptr, sums_ptr, n_cols, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + columns, mask=columns < n_cols, other=-float("inf"))
    best = tl.topk(x, K)
    tl.store(values_ptr + row * K + tl.arange(0, K), best)
    ordered = tl.sort(x, descending=True)
    sums = tl.cumsum(tl.where(ordered == -float("inf"), 0.0, ordered), 0)
    tl.store(sums_ptr + row * n_cols + columns, sums, mask=columns < n_cols)


def test_scan_and_sort_based_top_k() -> None:
    x = torch.randn(4, 50)
    values, sums = torch.empty(4, 8), torch.empty(4, 50)
    top_k_kernel[(4,)](x, values, sums, 50, K=8, BLOCK=64)
    assert torch.equal(values, x.topk(8).values)
    torch.testing.assert_close(sums, x.sort(descending=True).values.cumsum(1), atol=1e-5, rtol=1e-5)
