"""Scans from graphs: random shapes, dims and dtypes against eager, how they fuse, and where they stay calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stator.loop.nest import Extern, Program
from stator.loop.schedule import schedule
from stator.loop.verify import verify_program, verify_schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.execute import run
from tests.cases.graphs import trace

SCANS: dict[str, Callable[..., Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
}
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
)


def lowered(fn: Callable[..., Any], *inputs: Tensor, device: str = "cpu") -> tuple[Program, list[Any]]:
    gm, given = trace(fn, inputs, DECOMPOSITIONS)
    program = lower(gm, "scan", typical(device))
    verify_program(program)
    return program, list(given)


@settings(max_examples=120)
@given(
    st.sampled_from(sorted(SCANS)),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=3),
    st.integers(0, 2),
    st.integers(0, 2**16),
    st.booleans(),
)
def test_agrees_with_eager(
    name: str, dtype: torch.dtype, size: list[int], dim: int, seed: int, transposed: bool
) -> None:
    if name == "logcumsumexp" and not dtype.is_floating_point:
        return
    source = torch.Generator().manual_seed(seed)
    x = (torch.randn(size, generator=source) * 2).round(decimals=1).to(dtype)
    x = x.transpose(0, -1) if transposed and size else x
    dim = dim % len(size) if size else -1
    program, inputs = lowered(lambda t: SCANS[name](t, dim), x)
    if 0 not in size:
        verify_schedule(schedule(program, typical("cpu")))
    found, eager = run(program, inputs), SCANS[name](x, dim)
    for ours, wanted in zip(found, eager if isinstance(eager, tuple) else (eager,), strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
        torch.testing.assert_close(ours, wanted, equal_nan=True)


def test_float32_is_kept_in_float64() -> None:
    x = torch.tensor([1e8, 1.0, -1e8, 1e30, 1e30, -1e30])
    program, inputs = lowered(lambda t: (t.cumsum(0), t.cumprod(0)), x)
    for ours, exact in zip(run(program, inputs), (x.double().cumsum(0), x.double().cumprod(0)), strict=True):
        assert torch.equal(ours, exact.float())


FUSED: dict[str, Callable[[Tensor], Any]] = {
    "nucleus": lambda x: x.softmax(-1).cumsum(-1) < 0.9,
    "backwards": lambda x: (x * 2).flip(1).cumsum(1).flip(1) + x,
    "columns": lambda x: (x.exp().cumsum(0) * x).cummax(0),
    "share": lambda x: (lambda c: c / c.sum(1, keepdim=True))((x * x).cumsum(1)),
    "gradient": lambda x: torch.flip(torch.cumsum(torch.flip(x.cos(), [1]), 1), [1]) * x,
    "count": lambda x: (x > 0).cumsum(1) - 1,
}


@pytest.mark.parametrize("name", FUSED)
def test_one_kernel(name: str) -> None:
    """What makes the operand, and what uses the result, is in the loop of the scan."""
    program, _ = lowered(FUSED[name], torch.randn(64, 48))
    made = schedule(program, typical("cpu"))
    verify_schedule(made)
    assert len(made.steps) == 1, made.text()


def test_work_around_a_long_row_keeps_its_threads() -> None:
    for length, steps in ((1 << 16, 3), (1 << 10, 1)):
        program, _ = lowered(lambda x: (x.exp().cumsum(0) * 2).sin(), torch.randn(length))
        assert len(schedule(program, typical("cpu")).steps) == steps


@pytest.mark.parametrize(("size", "calls"), [((1 << 16,), 1), ((4, 1 << 15), 1), ((64, 1 << 15), 0), ((64, 300), 0)])
def test_a_gpu_calls_eager_for_a_few_long_rows(size: tuple[int, ...], calls: int) -> None:
    program, _ = lowered(lambda x: x.cumsum(-1), torch.empty(size), device="cuda")
    made = [node.target for node in program.nodes if isinstance(node, Extern)]
    assert made.count("aten.cumsum.default") == calls
    assert not any(isinstance(node, Extern) for node in lowered(lambda x: x.cumsum(-1), torch.empty(size))[0].nodes)
