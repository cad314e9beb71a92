"""Masks inside of masks: the text of a kernel grows with what it computes, not with the paths to it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import stator
from stator.codegen import cpp, triton
from stator.loop.kernel import Kernel
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from stator.targets.cpu.record import read
from tests.cases.graphs import trace


def written(times: int) -> Any:
    """A field whose inner part is written again and again, each time from what it was before."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for k in range(times):
            out[1:-1, 2:-2] += x[1:-1, 2:-2] * y[k] - out[1:-1, 2:-2] * 0.5
        return out

    return fn


def kernels(times: int, device: str) -> list[Kernel]:
    gm, _ = trace(written(times), (torch.randn(12, 14), torch.randn(16)), DECOMPOSITIONS)
    return list(schedule(lower(gm, "test", typical(device)), typical(device, 2)).kernels)


def lines(times: int, target: str) -> int:
    if target == "cpp":
        return cpp.emit(kernels(times, "cpu"), read()).count("\n")
    return triton.emit(kernels(times, "cuda"), typical("cuda", 2)).count("\n")


@pytest.mark.parametrize("target", ["cpp", "triton"])
def test_the_text_is_linear(target: str) -> None:
    few, more, most = lines(2, target), lines(4, target), lines(8, target)
    assert most - more <= 3 * (more - few)


@pytest.mark.parametrize("times", [1, 3, 8])
def test_as_eager(times: int) -> None:
    x, y = torch.randn(37, 41), torch.randn(16)
    fn = written(times)
    torch.testing.assert_close(stator.compile(fn, fullgraph=True)(x, y), fn(x, y))


def test_what_all_lanes_share_is_loaded_without_a_mask() -> None:
    def fn(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x * scale[:, None].rsqrt(), (3, 2))

    gm, _ = trace(fn, (torch.randn(12, 30), torch.rand(12)), DECOMPOSITIONS)
    text = cpp.emit(schedule(lower(gm, "test", typical("cpu")), typical("cpu", 2)).kernels, read())
    before, loop = text[text.index("k0_range") :].split("SWEEP(", 1)
    assert "rsqrt_" in before and "rsqrt_" not in loop
    assert "load_if" in loop and "gather_if" not in loop


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_rows_of_borders_are_read_at_one_position(mode: str) -> None:
    """And not as often as a dim has parts, each under its condition."""
    gm, _ = trace(
        lambda x: torch.nn.functional.pad(x, (3, 3, 3, 3), mode), (torch.randn(8, 32, 56, 56),), DECOMPOSITIONS
    )
    text = cpp.emit(list(schedule(lower(gm, "test", typical("cpu")), typical("cpu", 2)).kernels), read())
    loads = re.findall(r"load\w*[<(]|gather\w*<", text[text.index("k0_range") :])
    assert len(loads) <= 4, loads  # the position, and each part of the last dim


def test_a_position_known_to_be_inside_needs_no_mask() -> None:
    """The gradient of a diagonal asks of each element whether it lies there; what it may be is one number for a row."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(torch.ops.aten.diagonal_backward(x, [64, 64], 0, 0, 1), (0, 32))

    x = torch.randn(64)
    gm, _ = trace(fn, (x,), DECOMPOSITIONS)
    text = cpp.emit(schedule(lower(gm, "test", typical("cpu")), typical("cpu", 2)).kernels, read())
    before, loop = text[text.index("k0_range") :].split("SWEEP(", 1)
    assert "load1(" in before and "load" not in loop and "gather" not in loop
    torch.testing.assert_close(stator.compile(fn)(x), fn(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int16, torch.float32], ids=str)
def test_rows_and_borders_of_any_length(dtype: torch.dtype) -> None:
    """What is left over of a row, and what is inside of a border, is moved under a mask: nothing beside it changes."""
    rows = [(torch.randn(3, length) * 99).to(dtype) for length in range(1, 36)]

    def function(*rows: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.pad(-row, (2, 3), value=7) for row in rows] + [-row for row in rows]

    compiled = stator.compile(function, fullgraph=True, options={"cache": False})
    for found, wanted in zip(compiled(*rows), function(*rows), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
