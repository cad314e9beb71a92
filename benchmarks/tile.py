"""Kernels in the tile language on the CPU, beside the same of PyTorch: `python -m benchmarks.tile [kernel …]`.

Both write into tensors that are there where PyTorch can. They are called in turn, after a call of each that is not
timed; a figure is the median of rounds, and the last column how many times as fast the kernel is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import stator.tile as triton
import stator.tile.language as tl

#: Seconds that a kernel is measured for.
SECONDS = 2.0
SIZE, ROWS, COLUMNS, SIDE = 10_000_000, 4096, 1024, 1024
Call = Callable[[], Any]


class Case(NamedTuple):
    """A launch and what it is measured beside, and the results of both."""

    name: str
    launch: Call
    peer: Call
    results: Callable[[], tuple[torch.Tensor, torch.Tensor]]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(out, x, stride, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    given = tl.load(x + row * stride + offsets, mask=mask, other=-float("inf"))
    above = tl.exp(given - tl.max(given, axis=0))
    tl.store(out + row * stride + offsets, above / tl.sum(above, axis=0), mask=mask)


@triton.jit
def layer_norm_kernel(out, x, weight, bias, stride, columns, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    given = tl.load(x + row * stride + offsets, mask=mask, other=0.0)
    mean = tl.sum(given, axis=0) / columns
    centred = tl.where(mask, given - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    result = centred * scale * tl.load(weight + offsets, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(out + row * stride + offsets, result, mask=mask)


@triton.jit
def matmul_kernel(a, b, c, side, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    left = a + rows[:, None] * side + inner[None, :]
    right = b + inner[:, None] * side + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, side, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * side
    tl.store(c + rows[:, None] * side + columns[None, :], total.to(c.dtype.element_ty))


def cases() -> Iterator[Case]:
    """Every case, with inputs of its own."""
    x, y, out, wanted = (torch.randn(SIZE) for _ in range(4))
    grid = (triton.cdiv(SIZE, 8192),)
    yield Case(
        f"add {SIZE:,}", lambda: add_kernel[grid](x, y, out, SIZE, BLOCK=8192), lambda: torch.add(x, y, out=wanted),
        lambda: (out, wanted),
    )  # fmt: skip
    a, left, right = (torch.randn(ROWS, COLUMNS) for _ in range(3))
    yield Case(
        f"softmax {ROWS}×{COLUMNS}", lambda: softmax_kernel[(ROWS,)](left, a, COLUMNS, COLUMNS, BLOCK=1024),
        lambda: torch.softmax(a, 1, out=right), lambda: (left, right),
    )  # fmt: skip
    weight, bias = torch.randn(COLUMNS), torch.randn(COLUMNS)
    yield Case(
        f"layer_norm {ROWS}×{COLUMNS}",
        lambda: layer_norm_kernel[(ROWS,)](left, a, weight, bias, COLUMNS, COLUMNS, 1e-5, BLOCK=1024),
        lambda: F.layer_norm(a, (COLUMNS,), weight, bias),
        lambda: (left, F.layer_norm(a, (COLUMNS,), weight, bias)),
    )
    for dtype in (torch.float32, torch.bfloat16):
        for blocks in ((64, 64, 32), (128, 128, 64)):
            yield product(dtype, blocks)


def product(dtype: torch.dtype, blocks: tuple[int, int, int]) -> Case:
    """A product of two square matrices in blocks of so many rows, columns and terms."""
    a, b, c, wanted = (torch.randn(SIDE, SIDE).to(dtype) for _ in range(4))
    rows, columns, inner = blocks
    grid = (SIDE // rows, SIDE // columns)
    return Case(
        f"matmul {SIDE}³ {str(dtype).removeprefix('torch.')} {'/'.join(map(str, blocks))}",
        lambda: matmul_kernel[grid](a, b, c, SIDE, M=rows, N=columns, K=inner),
        lambda: torch.matmul(a, b, out=wanted), lambda: (c, wanted),
    )  # fmt: skip


def measured(case: Case) -> tuple[float, float]:
    """Milliseconds of both, which agree."""
    case.launch()
    case.peer()
    got, want = case.results()
    torch.testing.assert_close(got, want, atol=1e-3 if got.dtype == torch.float32 else 0.5, rtol=1e-2)
    samples: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while not samples[0] or time.perf_counter() < end:
        for taken, call in zip(samples, (case.launch, case.peer), strict=True):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples[0]), statistics.median(samples[1])


def main() -> None:
    """Print the table of the kernels whose names begin as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="how their names begin; all where there are none")
    options = parser.parse_args()
    table = Table("kernel", "ms", "PyTorch: ms", "times its speed")
    for case in cases():
        if not options.kernels or case.name.startswith(tuple(options.kernels)):
            mine, theirs = measured(case)
            table.add_row(case.name, f"{mine:.2f}", f"{theirs:.2f}", f"{theirs / mine:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
