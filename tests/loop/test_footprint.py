"""What leaves the arena of a graph alone: nothing on the host; elsewhere what operators' results could lie in."""

from __future__ import annotations

import torch

from stator.loop.footprint import settle
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

HOST, GPU = typical("cpu"), typical("cuda")


def one_after_the_other(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Something large is in the arena, and is not needed any more when an operator returns something large."""
    total = (torch.exp(x * 2) @ w).sum()
    return (w + total).sort(0)[0].sum(0)


def scheduled() -> Schedule:
    inputs = [torch.randn(2048, 256), torch.randn(256, 256)]
    gm, _ = trace(one_after_the_other, inputs, DECOMPOSITIONS)
    return schedule(lower(gm, "case", HOST), HOST)


def test_memory_of_a_graph_alone() -> None:
    made = scheduled()
    assert made.memory.arena_bytes > 0
    same, _, before = settle(made, None, device=HOST)
    assert same.memory == made.memory and before.arena == made.memory.arena_bytes
    moved, _, after = settle(made, None, device=GPU)
    assert after.peak < before.peak and moved.memory.arena_bytes < made.memory.arena_bytes
    assert set(moved.memory.allocated) > set(made.memory.allocated) and after.backward == 0
