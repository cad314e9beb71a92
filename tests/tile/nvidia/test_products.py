"""What products are made of: one instruction for both halves of an integer's."""

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


def compiled(kernel: triton.JITFunction, *args: object, **options: object) -> Text:
    found = kernel.warmup(*args, grid=(1,), **options)
    return text_of(found.compiled.module, found.name)


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
