"""Rows that others read or write turned: kernels of rows beside kernels of tiles, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.loop.deps import lies_across
from stator.loop.kernel import Launch
from stator.targets import typical
from tests.codegen import tiled


def turned_after(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """A norm whose rows are the columns of a product."""
    total = x + y
    return total, F.layer_norm(total, total.shape[-1:]).transpose(1, 2).contiguous()


def turned_before(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """What such a product gives, added to the rows, and the next norm."""
    total = x + y.transpose(1, 2)
    return total, F.layer_norm(total, total.shape[-1:])


def straight(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    total = x + y
    return total, F.layer_norm(total, total.shape[-1:])


def of_one_row(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """A bias that lies turned is small enough to stay in a cache."""
    total = x + y[:, :1].transpose(1, 2)
    return total, F.layer_norm(total, total.shape[-1:])


X, Y = torch.randn(4, 48, 64), torch.randn(4, 64, 48)
#: What is computed, of what, and in how many kernels.
CASES: dict[str, tuple[Callable[..., Any], Tensor, int]] = {
    "after": (turned_after, torch.randn_like(X), 2),
    "before": (turned_before, Y, 2),
    "neither": (straight, torch.randn_like(X), 1),
    "few": (of_one_row, torch.randn(4, 64, 48), 1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_move_no_lines_for_single_elements(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    program, y, count = CASES[name]
    inputs = X.to(dtype), y.to(dtype)
    made, given = tiled.scheduled(program, *inputs)
    launches = [step for step in made.steps if isinstance(step, Launch)]
    assert len(launches) == count, made.text()
    for launch in launches:
        kernel = launch.kernel
        places = [node.attr[1] for node in kernel.nodes if node.op == "load"] + [s.index for s in kernel.stores]
        assert not kernel.reduce_axes or not any(lies_across(i, kernel.axes, kernel.reduce_axes) for i in places)
    bound = 1e-4 if dtype is torch.float32 else 2e-2
    for found, wanted in zip(tiled.run(made, given, tmp_path), program(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


def gradients(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Of rows, and of the weights that they were multiplied by, where a product gives them as columns."""
    rows = g.transpose(1, 2)
    along = ((rows * w) * x).sum(-1, keepdim=True)
    return (rows * w - x * along).contiguous(), (rows * x).sum((0, 1)), rows.sum((0, 1))


def test_what_is_given_turned_is_turned_once(tmp_path: Path) -> None:
    """It is read along rows then, by all; what it is read with stays."""
    free = replace(typical("cuda"), launch_cost=0.0)
    g, w = torch.randn(4, 64, 48), torch.randn(64)
    for device, count in ((free, 1), (replace(free, launch_cost=1.0), 0), (typical("cpu"), 0)):
        made, given = tiled.scheduled(gradients, g, X, w, device=device)
        assert len([name for name in made.buffers if "turned" in name]) == count, made.text()
        if count:
            (copy,) = [step for step in made.steps if isinstance(step, Launch) and step.args[0].buffer == "arg0"]
            readers = [step for step in made.steps if step is not copy]
            assert "arg0" not in {pointer.buffer for step in readers for pointer in step.args}  # type: ignore[union-attr]
            assert made.buffers["arg0_turned"].size == (4, 48, 64)
            for found, wanted in zip(tiled.run(made, given, tmp_path), gradients(g, X, w), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_the_host_reads_across_rows() -> None:
    """Its caches hold the lines of several rows."""
    made, _ = tiled.scheduled(turned_before, X, Y, device=typical("cpu"))
    assert len(made.steps) == 1, made.text()
