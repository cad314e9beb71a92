"""A stream of half type that layers add to: in memory after each of them, or after some if it need not be rounded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.lowering.context import UNROUNDED_READS
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

LAYERS, ROWS, COLUMNS = 12, 4096, 256


def layers(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    for _ in range(LAYERS):
        y = torch.nn.functional.layer_norm(x, (COLUMNS,))
        x = x + torch.tanh(y @ w) @ v
    return torch.nn.functional.layer_norm(x, (COLUMNS,))


def stored(dtype: torch.dtype, device: str, rounds: bool) -> int:
    """How many of the stream's values are in memory."""
    given = typical(device)
    inputs = [torch.ones(*size, dtype=dtype) for size in ((ROWS, COLUMNS), (COLUMNS, 512), (512, COLUMNS))]
    gm, _ = trace(layers, inputs, DECOMPOSITIONS)  # type: ignore[arg-type]
    made = schedule(lower(gm, "layers", given, rounds), given, rounds)
    adds = [node for node in gm.graph.nodes if node.target is torch.ops.aten.add.Tensor]
    names = {node.name for node in adds if node.meta["val"].shape == (ROWS, COLUMNS)}
    return len(names.intersection(made.buffers))


@pytest.mark.parametrize(
    ("dtype", "device", "rounds", "least", "most"),
    [
        (torch.bfloat16, "cuda", True, LAYERS - 1, LAYERS),
        (torch.bfloat16, "cuda", False, 1, LAYERS // UNROUNDED_READS),
        (torch.float32, "cuda", False, LAYERS - 1, LAYERS),
        (torch.bfloat16, "cpu", False, LAYERS - 1, LAYERS),
    ],
)
def test_how_often_it_is_in_memory(dtype: torch.dtype, device: str, rounds: bool, least: int, most: int) -> None:
    assert least <= stored(dtype, device, rounds) <= most
