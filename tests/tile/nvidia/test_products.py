"""What products are made of: one instruction for both halves of an integer's, words of 32 bits for tensor cores'."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.nvidia.kernel import Text
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine

TURNS = 3


@triton.jit
def halves_kernel(x, y, low, high, n, LOW: tl.constexpr, HIGH: tl.constexpr):
    places = tl.arange(0, 64)
    a, b = tl.load(x + places), tl.load(y + places)
    for _ in range(n):
        if LOW:
            tl.store(low + places, a * b)
        if HIGH:
            tl.store(high + places, tl.umulhi(b, a))
        a += 1
    if n > 2:
        if LOW:
            tl.store(low + places, a * b)
        if HIGH:
            tl.store(high + places, tl.umulhi(a, b))


#: An architecture without warp groups.
EARLIER = 89


def compiled(kernel: triton.JITFunction, *args: object, **options: object) -> Text:
    found = kernel.warmup(*args, grid=(1,), **options)
    return text_of(found.compiled.module, found.name, EARLIER)


def run(text: Text, arrays: list[np.ndarray], *numbers: int) -> None:
    Machine(text, arrays).run([*[array.__array_interface__["data"][0] for array in arrays], *numbers])


@pytest.mark.parametrize("turns", [0, 1, TURNS])
@pytest.mark.parametrize("dtype", [torch.uint32, torch.int32])
def test_both_halves_of_a_product_come_of_one_instruction(dtype: torch.dtype, turns: int) -> None:
    kind = np.uint32 if dtype == torch.uint32 else np.int32
    generator = np.random.default_rng(turns)
    a, b = (generator.integers(0, 1 << 32, 64, np.uint32).view(kind) for _ in range(2))
    low, high = np.zeros(64, kind), np.zeros(64, kind)
    given = torch.zeros(64, dtype=dtype)
    text = compiled(halves_kernel, given, given, given, given, 5, LOW=True, HIGH=True)
    if dtype == torch.uint32:
        assert text.llvm.count("mul.wide.u32") == 2  # in the loop and behind it
    run(text, [a, b, low, high], turns)
    if turns:
        last = a.view(np.uint32) + np.uint32(turns if turns > 2 else turns - 1)
        whole = last.astype(np.uint64) * b.view(np.uint32)
        np.testing.assert_array_equal(low.view(np.uint32), whole.astype(np.uint32))
        np.testing.assert_array_equal(high.view(np.uint32), (whole >> 32).astype(np.uint32))


@pytest.mark.parametrize(("low", "high"), [(True, False), (False, True)])
def test_half_of_a_product_alone_is_no_wide_one(low: bool, high: bool) -> None:
    given = torch.zeros(64, dtype=torch.uint32)
    assert "mul.wide" not in compiled(halves_kernel, given, given, given, given, 5, LOW=low, HIGH=high).llvm


@triton.jit
def product_kernel(a, b, c, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TURNED: tl.constexpr):
    rows, columns, terms = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, inner, K):
        left = tl.load(a + rows[:, None] * inner + start + terms[None, :])
        if TURNED:
            right = tl.load(b + columns[:, None] * inner + start + terms[None, :]).T
        else:
            right = tl.load(b + (start + terms)[:, None] * N + columns[None, :])
        acc = tl.dot(left, right, acc) * 0.5
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def halved(a: np.ndarray, b: np.ndarray, step: int) -> np.ndarray:
    """The product whose sum is halved behind every turn."""
    found = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], step):
        found = (found + a[:, start : start + step] @ b[start : start + step]) / 2
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("turns", [1, TURNS])
def test_operands_in_parts_are_words_through_the_loop(
    dtype: torch.dtype, turned: bool, stages: int, turns: int
) -> None:
    rows, columns, step = 64, 32, 64
    generator = torch.Generator().manual_seed(turns)
    sizes = (rows, turns * step), (turns * step, columns)
    a, b = (torch.randint(-8, 9, size, generator=generator).to(dtype) for size in sizes)
    c = torch.zeros(rows, columns)
    given = b.T.contiguous() if turned else b
    text = compiled(
        product_kernel, a, given, c, 64, M=rows, N=columns, K=step, TURNED=turned, num_stages=stages, num_warps=4
    )
    body = text.llvm[text.llvm.index("head") :]
    if dtype != torch.float32:
        assert "ldmatrix" in body and "to <2 x" not in body and "<2 x half>" not in body and "<2 x i16>" not in body
    found = c.numpy()
    run(text, [a.view(torch.uint8).numpy(), given.view(torch.uint8).numpy(), found], turns * step)
    np.testing.assert_allclose(found, halved(a.double().numpy(), b.double().numpy(), step), rtol=1e-6)


@triton.jit
def batched_kernel(a, b, c, inner, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batches, rows = tl.arange(0, B)[:, None, None], tl.arange(0, M)[None, :, None]
    columns, terms = tl.arange(0, N)[None, None, :], tl.arange(0, K)
    acc = tl.zeros((B, M, N), tl.float32)
    for start in range(0, inner, K):
        left = tl.load(a + (batches * M + rows) * inner + start + terms[None, None, :])
        right = tl.load(b + (batches * inner + start + terms[None, :, None]) * N + columns)
        acc = tl.dot(left, right, acc)
    tl.store(c + (batches * M + rows) * N + columns, acc)


def test_batches_go_in_parts() -> None:
    batches, rows, columns, step = 2, 32, 16, 32
    generator = torch.Generator().manual_seed(0)
    sizes = (batches, rows, TURNS * step), (batches, TURNS * step, columns)
    a, b = (torch.randint(-8, 9, size, generator=generator).half() for size in sizes)
    c = torch.zeros(batches, rows, columns)
    text = compiled(batched_kernel, a, b, c, TURNS * step, B=batches, M=rows, N=columns, K=step)
    assert text.llvm.count("cp.async.wait_group") == 3  # before the loop, in it and behind it
    run(text, [a.view(torch.uint8).numpy(), b.view(torch.uint8).numpy(), c.numpy()], TURNS * step)
    np.testing.assert_array_equal(c.numpy(), (a.double() @ b.double()).numpy())
