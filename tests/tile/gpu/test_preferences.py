"""Which layouts tiles prefer, and that deep expressions take no more than their own length."""

from __future__ import annotations

import time

import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.gpu.pipeline import lower


@triton.jit
def deep(x, out, N: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.arange(0, N)
    seeds = tl.load(x + rows)[:, None] + rows[None, :]
    for _ in tl.static_range(DEPTH):
        seeds = seeds * seeds + seeds
    tl.store(out + rows[:, None] * N + rows[None, :], seeds)


@triton.jit
def carried(x, out, n, N: tl.constexpr):
    rows = tl.arange(0, N)
    total = tl.zeros((N, N), tl.float32)
    for i in range(n):
        total += tl.load(x + i * N * N + rows[:, None] * N + rows[None, :])
    tl.store(out + rows[:, None] * N + rows[None, :], total)


def test_deep_expressions_take_their_own_length() -> None:
    compiled = deep.warmup(torch.int32, torch.int32, N=32, DEPTH=400, grid=(1,)).compiled
    start = time.process_time()
    module = lower(compiled.module, compiled.name)
    assert time.process_time() - start < 20  # each level twice would be 2 ** 400
    assert [o.op for o in module.functions[compiled.name].body.walk()].count("mul") < 1000


def test_what_a_loop_carries_is_where_it_is_loaded() -> None:
    compiled = carried.warmup(torch.float32, torch.float32, 4, N=32, grid=(1,)).compiled
    function = lower(compiled.module, compiled.name).functions[compiled.name]
    loop = next(o for o in function.body.walk() if o.op == "for")
    load = next(o for o in loop.regions[0].operations if o.op == "load")
    assert loop.regions[0].args[1].type.layout == load.result.type.layout and load.attrs["vector"] == 4
    assert not [o for o in function.body.walk() if o.op == "convert_layout"]
