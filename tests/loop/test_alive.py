"""What is in memory where a graph takes the most: told as it is counted by hand."""

from __future__ import annotations

import torch

from stator.loop import alive
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

CPU = typical("cpu")


def scheduled(function: object, *inputs: torch.Tensor) -> Schedule:
    gm, _ = trace(function, list(inputs), DECOMPOSITIONS)
    return schedule(lower(gm, "case", CPU), CPU)


def test_what_is_alive_at_the_peak() -> None:
    """The first product is there until the second one is made, of which a kernel then makes the result."""

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (x @ w @ v).sin().sum(0)

    made = scheduled(f, torch.randn(4096, 256), torch.randn(256, 256), torch.randn(256, 512))
    first, *rest = alive.lines(made)
    assert first == f"memory: at most     12.5 MiB at step 1 of {len(made.steps)}, aten.mm.default"
    assert rest == [
        "        8.0 MiB    1 x f32[4096, 512] within",
        "        4.0 MiB    1 x f32[4096, 256] within",
        "        0.5 MiB    1 x f32[256, 512] given",
    ]


def test_results_last_and_what_takes_their_memory_is_not_counted_twice() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sort(0)[0]
        return y * 2, y.cumsum(0)

    made = scheduled(f, torch.randn(512, 512))
    first, *rest = alive.lines(made)
    assert f"of {len(made.steps)}, " in first and any("2 x f32[512, 512] result" in line for line in rest)


def test_a_graph_that_makes_nothing() -> None:
    assert alive.lines(scheduled(lambda x: x, torch.empty(0))) == []
