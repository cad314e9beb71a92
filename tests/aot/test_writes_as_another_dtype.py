"""Writes through views of another dtype whose new values lie otherwise in memory, or have no elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.coverage.compare import Spread, differences, observe_on


def added(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 3
    v = y.view(torch.int32)
    v.add_(1)
    return y, v * 1, y.t(), y.sum()


def copied_from_another_layout(x: Tensor) -> tuple[Tensor, ...]:
    y = (x * 3).view(2, 2, -1).permute(1, 0, 2)
    v = y.view(torch.int32)
    v.copy_(torch.arange(v.numel(), dtype=torch.int32).view(v.shape[::-1]).permute(2, 1, 0))
    return y, v * 1, y[..., 1:]


def with_gaps(x: Tensor) -> tuple[Tensor, ...]:
    y = (x * 3)[:, :2]
    v = y.view(torch.int32)
    v.mul_(2)
    v[0].fill_(7)
    return y, v * 1, y[1:]


def twice(x: Tensor) -> tuple[Tensor, ...]:
    v = (y := x + 1).view(torch.int16)
    v.copy_(v.flip(-1))
    v.view(torch.int8).add_(1)
    return y, v * 1


def positions(x: Tensor) -> tuple[Tensor, ...]:
    y = x.cummax(-1)[1]
    v = y.view(torch.int32)
    v.add_(1)
    return y, v + 0, y.cummax(0)[1]


@pytest.mark.parametrize("columns", [0, 2, 5])
@pytest.mark.parametrize("write", [added, copied_from_another_layout, with_gaps, twice, positions])
def test_as_in_eager(write: Callable[[Tensor], tuple[Tensor, ...]], columns: int) -> None:
    x = torch.arange(4 * columns).view(4, columns)
    want = observe_on(write, [x.clone()], [])
    assert want.failed is None
    for backend in ("aot_eager", "inductor"):
        compiled = stator.compile(write, backend=backend, fullgraph=True, options={"strict": True})
        assert not differences(observe_on(compiled, [x.clone()], []), Spread(want, []))
