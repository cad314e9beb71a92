"""Modules that keep other processes informed around the module that they wrap: that one is a graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import stator

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch is built without gloo"
)


class Graphs:
    """A backend that runs graphs as they are, and notes their sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        self.sizes.append(sum(node.op.startswith("call_") for node in gm.graph.nodes))
        return gm.forward


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    stator.reset()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def wrapped() -> list[nn.Module]:
    parallel = nn.parallel.DistributedDataParallel(net())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of a world of one
        sharded = dist.fsdp.FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    return [parallel, sharded]


@pytest.mark.parametrize("which", [0, 1], ids=["DistributedDataParallel", "FullyShardedDataParallel"])
def test_called_in_a_compiled_function(which: int) -> None:
    outer = wrapped()[which]
    graphs, x = Graphs(), torch.randn(2, 3)
    compiled = stator.compile(lambda x: outer(x * 2).sum() * 2, backend=graphs)
    plain = net()
    with pytest.warns(UserWarning, match="does more than compute"):
        torch.testing.assert_close(compiled(x), plain(x * 2).sum() * 2)
    assert sorted(graphs.sizes) == [1, 2, 3]
    for _ in range(2):
        compiled(x)
    assert len(graphs.sizes) == 3


def test_compiled_as_a_whole() -> None:
    graphs, x = Graphs(), torch.randn(2, 3)
    outer = nn.parallel.DistributedDataParallel(net())
    compiled: Any = stator.compile(outer, backend=graphs)
    plain = copy.deepcopy(outer.module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            compiled(x).sum().backward()
    assert graphs.sizes == [3]
    plain(x).sum().backward()
    for ours, theirs in zip(outer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, 2 * theirs.grad)  # type: ignore[operator]


def test_around_a_compiled_module() -> None:
    graphs, x = Graphs(), torch.randn(2, 3)
    outer = nn.parallel.DistributedDataParallel(stator.compile(net(), backend=graphs))
    outer(x).sum().backward()
    assert graphs.sizes == [3]
    assert all(parameter.grad is not None for parameter in outer.parameters())


def test_the_rank_is_a_number() -> None:
    graphs, x = Graphs(), torch.randn(2, 3)
    compiled = stator.compile(
        lambda x: x * (dist.get_rank() + 1) / dist.get_world_size(), backend=graphs, fullgraph=True
    )
    assert torch.equal(compiled(x), x)
    assert graphs.sizes == [2]
