"""Kernels of the language as texts of tile IR: each is read back as the same, and runs as the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.core import Module
from stator.tile.ir.parse import parse
from stator.tile.ir.text import module_text
from stator.tile.ir.verify import verify

SIZE = 16


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    row = tl.load(x + columns, mask=mask, other=-float("inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(y + columns, e / tl.sum(e, 0), mask=mask)


@triton.jit
def flow(x, y, n, BLOCK: tl.constexpr):
    total = tl.load(x)
    for i in range(1, n):
        value = tl.load(x + i)
        if value > total:
            total = value
        elif value < -total:
            total = -value
        else:
            total += 1
    steps = 0
    while total > 1:
        total = total / 2
        steps += 1
    tl.store(y, total + steps)
    if n > 100:
        return
    tl.store(y + 1, total)


@triton.jit(noinline=True)
def halves(value):
    return value / 2, value * 2


@triton.jit
def calls(x, y, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    half, double = halves(tl.load(x + columns))
    tl.store(y + columns, tl.where(columns % 2 == 0, half, double))


@triton.jit
def first(a, b):
    return a


@triton.jit
def along(x, y, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x + columns)
    sums = tl.cumsum(row, 0, reverse=True) + tl.reduce(row, 0, first)
    square = tl.reshape(sums, (4, BLOCK // 4))
    product = tl.dot(square, tl.trans(square))
    tl.atomic_add(y + columns, tl.sort(tl.reshape(product, (BLOCK,))))
    tl.device_assert(columns < n, "too many columns")


KERNELS = [softmax, flow, calls, along]


def compiled(kernel: Any) -> Module:
    """The module of a kernel for two rows of f32 and a number."""
    row = torch.zeros(SIZE)
    return kernel.warmup(row, row, SIZE, BLOCK=SIZE, grid=(1,)).compiled.module


def result(module: Module) -> bytes:
    """What a module's kernel makes of a row."""
    x, y = np.random.default_rng(0).normal(size=SIZE).astype(np.float32), np.zeros(SIZE, np.float32)
    memory = Memory()
    name = next(name for name, function in module.functions.items() if len(function.params) > 1)
    arguments = [memory.add_array(x, "x"), memory.add_array(y, "y"), SIZE][: len(module.functions[name].params)]
    run(module, name, arguments, memory)
    assert y.any()
    return y.tobytes()


@pytest.mark.parametrize("locations", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
def test_kernels_go_through_text(kernel: Any, locations: bool) -> None:
    module = compiled(kernel)
    text = module_text(module, locations)
    again = parse(text)
    verify(again)
    assert module_text(again, locations) == text and ("test_texts.py" in text) == locations
    assert result(again) == result(module)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
def test_what_kernels_are_compiled_to(kernel: Any, golden: Callable[[str, str], None]) -> None:
    golden(kernel.fn.__name__, module_text(compiled(kernel)))
