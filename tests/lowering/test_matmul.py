"""Which products are tiles of ours on a GPU by rule, and in which loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator import passes
from stator.fake.tensor import make
from stator.loop.contraction import contraction
from stator.loop.nest import Nest, Program
from stator.lowering import lower
from stator.lowering.matmul import divided
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace
from tests.codegen import tiled


def on_gpu(fn: Callable[..., Any], *sizes: tuple[int, ...]) -> Program:
    """A function of bfloat16 tensors on a GPU, lowered by rule; nothing as large as they are is made."""
    inputs = [torch.zeros((1,) * len(size), dtype=torch.bfloat16).expand(size) for size in sizes]
    gm, _ = trace(fn, [x.contiguous() for x in inputs], DECOMPOSITIONS)
    passes.run(gm, passes.PIPELINE)
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["val"] = make(tuple(value.shape), value.dtype, torch.device("cuda"), tuple(value.stride()))
    return lower(gm, "test", typical("cuda"))


def uniform(*size: int) -> Tensor:
    """Random numbers as a graph with gradients draws them, from a seed."""
    return torch.ops.stator.random(
        torch.zeros(1, dtype=torch.int64), 0, size, kind="uniform", dtype=torch.float32, device=torch.device("cpu")
    )


def ours(program: Program) -> int:
    nests = [node for node in program.nodes if isinstance(node, Nest)]
    return sum(contraction([nest.value], nest.axes, nest.reduce_axes) is not None for nest in nests)


#: What is computed, the sizes that it takes, and how many of its products are ours.
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    "relu": (lambda x, w, b, v: F.relu(F.linear(x, w, b)) @ v, ((2048, 256), (1024, 256), (1024,), (1024, 64)), 1),
    "costly": (lambda x, w, b, v: F.gelu(F.linear(x, w, b)) @ v, ((2048, 256), (1024, 256), (1024,), (1024, 64)), 0),
    "a result": (lambda x, w: F.relu(F.linear(x, w)), ((2048, 256), (1024, 256)), 1),
    "alone": (lambda x, w, b: F.linear(x, w, b), ((2048, 256), (1024, 256), (1024,)), 0),
    "long": (lambda x, w: F.relu(F.linear(x, w)), ((2048, 4096), (1024, 4096)), 0),
    "of a sum": (lambda x, w: F.relu(F.linear(x, w)).sum(), ((2048, 256), (1024, 256)), 0),
    "few rows": (F.linear, ((8, 512), (1024, 512)), 1),
    "few rows and terms": (lambda x, w: F.relu(F.linear(x, w)), ((8, 256), (1024, 256)), 0),
    "some rows": (F.linear, ((32, 512), (1024, 512)), 0),
    "many small ones": (torch.bmm, ((96, 64, 32), (96, 32, 128)), 1),
    "some small ones": (torch.bmm, ((32, 64, 32), (32, 32, 128)), 0),
    "many of one row": (torch.bmm, ((96, 1, 32), (96, 32, 128)), 0),
    "gate": (
        lambda x, w, v, o: (F.relu(F.linear(x, w)) * F.linear(x, v)) @ o,
        ((2048, 256), (1024, 256), (1024, 256), (1024, 64)),
        2,
    ),
    "a costly factor": (lambda x, w, g: (x @ w) * torch.sigmoid(g), ((2048, 256), (256, 1024), (2048, 1024)), 0),
    "a costly factor of rows": (lambda x, w, g: (x @ w) * torch.exp(g), ((2048, 256), (256, 1024), (2048, 1)), 1),
    "a factor that is there": (
        lambda x, w, g, v: ((x @ w) * (e := torch.exp(g)), e @ v),
        ((2048, 256), (256, 1024), (2048, 1024), (1024, 4096)),
        1,
    ),
    "a stored result with a cheap reader": (
        lambda x, w, v: ((y := F.relu(F.linear(x, w))) @ v, y + 1),
        ((2048, 256), (1024, 256), (1024, 64)),
        1,
    ),
    "a stored result with a costly reader": (
        lambda x, w, v: ((y := F.relu(F.linear(x, w))) @ v, y.exp()),
        ((2048, 256), (1024, 256), (1024, 64)),
        0,
    ),
    "a stored result with a costly factor": (
        lambda x, w, v, g: ((y := F.relu(F.linear(x, w))) @ v, y * torch.exp(g)),
        ((2048, 256), (1024, 256), (1024, 64), (2048, 1024)),
        0,
    ),
    "a stored result with norms": (
        lambda x, w, v: ((y := F.relu(F.linear(x, w))) @ v, F.softmax(y, -1)),
        ((2048, 256), (1024, 256), (1024, 64)),
        1,
    ),
    "a dropout": (
        lambda x, w, v: (F.relu(F.linear(x, w)) * (uniform(2048, 1024) >= 0.1)) @ v,
        ((2048, 256), (1024, 256), (1024, 64)),
        0,
    ),
    "odd columns": (F.linear, ((512, 256), (1025, 256)), 1),
    "odd terms": (F.linear, ((512, 255), (1025, 255)), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_which_are_ours(name: str) -> None:
    fn, sizes, count = CASES[name]
    assert ours(on_gpu(fn, *sizes)) == count


WEIGHTS: dict[str, tuple[int, torch.dtype, bool]] = {
    "eight bits": (1, torch.int8, True),
    "floats of eight bits": (1, torch.float8_e4m3fn, True),
    "others": (1, torch.float8_e5m2, True),
    "as wide": (1, torch.int16, False),
    "several rows": (8, torch.int8, False),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_that_is_computed_of_fewer_bytes_is_computed_where_it_is_multiplied(name: str) -> None:
    """By a single row: elsewhere it would be written and read in its own width."""
    rows, dtype, fused = WEIGHTS[name]
    weight = torch.zeros((1024, 512)).to(dtype)

    def fn(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return F.linear(x, w.to(torch.bfloat16) * scale)

    gm, _ = trace(fn, (torch.zeros(rows, 512).bfloat16(), weight, torch.zeros(1024, 1).bfloat16()), DECOMPOSITIONS)
    passes.run(gm, passes.PIPELINE)
    program = lower(tiled.on_a_device(gm), "test", typical("cuda"))
    assert (len(program.nodes) == 1 and isinstance(program.nodes[0], Nest)) == fused, program.text()


@pytest.mark.parametrize("turned", [False, True])
def test_a_single_row_is_ours_along_the_weight(turned: bool) -> None:
    """Dot products for each column; where these lie side by side it is the library's."""
    made = on_gpu(F.linear, (1, 512), (1024, 512)) if turned else on_gpu(torch.matmul, (1, 512), (512, 1024))
    assert isinstance(made.nodes[0], Nest) == turned


def test_loops_are_those_in_which_results_are_read() -> None:
    assert divided((6, 8), (2, 3, 4, 2)) == [(2, 3), (4, 2)]
    assert divided((6, 8), (6, 8, 1)) == [(6,), (8,)]
    assert divided((1, 8), (1, 2, 4)) == [(1,), (2, 4)]
    assert divided((6, 8), (4, 12)) is None
    assert divided((6, 8), (6,)) is None
