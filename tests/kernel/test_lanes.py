"""Which axis has lanes on the CPU, and where there are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.kernel.decisions import decide
from stator.loop.kernel import Launch
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

HOST = typical("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)


def reasons(function: Callable[..., Tensor], *inputs: Tensor) -> list[str]:
    graph, _ = trace(function, inputs, DECOMPOSITIONS)
    steps = schedule(lower(graph, "test", HOST), HOST).steps
    return [decide(step.kernel, HOST).reason(HOST) for step in steps if isinstance(step, Launch)]


def gathered(x: Tensor, at: Tensor) -> Tensor:
    return x.gather(-1, at)


def test_what_is_only_moved_to_where_an_index_says_goes_one_by_one() -> None:
    x, at = torch.randn(64, 96), torch.randint(96, (64, 96))
    assert all("one by one" in reason for reason in reasons(gathered, x, at))
    assert all("lanes along" in reason for reason in reasons(lambda x, at: x.gather(-1, at).exp(), x, at))
    assert all("lanes along" in reason for reason in reasons(lambda x, at: x[at[0]], x, at % 64))  # whole rows
    assert all("lanes along" in reason for reason in reasons(lambda x, at: x + 1, x, at))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moved_numbers_have_all_their_bits(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(33, 71) * 50).to(dtype)
    if dtype.is_floating_point:
        x[:, :4] = torch.tensor([float("nan"), -0.0, float("inf"), torch.finfo(dtype).tiny / 2])
    at = torch.randint(71, (33, 71))
    compiled = stator.compile(gathered, fullgraph=True)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize]
    assert torch.equal(compiled(x, at).view(bits), gathered(x, at).view(bits))
    with pytest.raises(RuntimeError, match="index 71 is out of bounds"):
        compiled(x, at + 1)
