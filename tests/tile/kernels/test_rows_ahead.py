"""Loops over rows that say how many are under way at once: what is copied ahead, what waits, and what may not."""

from __future__ import annotations

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl

COLUMNS, PADDED = 96, 128


@triton.jit
def scaled(x, scale, weight, out, total, ROWS, STAGES: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < COLUMNS
    first = tl.program_id(0) * ROWS
    sums = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(first, first + ROWS, num_stages=STAGES):
        by = tl.load(scale + row)
        places = row * COLUMNS + columns
        value = tl.load(x + places, inside, other=0).to(tl.float32)
        mean = tl.sum(value, 0) / COLUMNS
        value = (value - mean) * by * tl.load(weight + columns, inside, other=0)
        tl.store(out + places, value, inside)
        sums += value
    tl.store(total + tl.program_id(0) * COLUMNS + columns, sums, inside)


@triton.jit
def running(x, ROWS, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    """Each row has the one before it added, which the turn before has written."""
    columns = tl.arange(0, BLOCK)
    for row in tl.range(1, ROWS, num_stages=STAGES):
        places = x + row * BLOCK + columns
        tl.store(places, tl.load(places) + tl.load(places - BLOCK))


def given(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, scale, weight = torch.randn(rows, COLUMNS), torch.randn(rows), torch.randn(COLUMNS)
    return x.to(dtype), scale, weight, torch.zeros(rows, COLUMNS), torch.zeros(2, COLUMNS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("stages", "turns"), [(1, 4), (2, 4), (3, 4), (3, 1), (4, 2), (3, 0)])
def test_rows_are_right(stages: int, turns: int, dtype: torch.dtype, way: str) -> None:
    x, scale, weight, out, total = given(2 * max(turns, 1), dtype)
    scaled[(2,)](x, scale, weight, out, total, turns, STAGES=stages, BLOCK=PADDED, COLUMNS=COLUMNS, num_warps=1)
    value = x.float()
    wanted = (value - value.mean(1, keepdim=True)) * scale[:, None] * weight
    wanted = wanted if turns else torch.zeros_like(wanted)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total, wanted.reshape(2, -1, COLUMNS).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stages", [1, 3])
def test_what_the_turn_before_has_written_is_not_read_ahead(stages: int, way: str) -> None:
    x = torch.randn(6, 64)
    wanted = x.cumsum(0)
    running[(1,)](x, 6, STAGES=stages, BLOCK=64, num_warps=1)
    torch.testing.assert_close(x, wanted)
