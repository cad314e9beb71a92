"""Positions out of range where nothing lies at any position: some kernels look at them all the same, most do not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

ROWS = 5
PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index": lambda x, i, s: x[i],
    "index of two dims": lambda x, i, s: x[i, i.clamp(0, 0)],
    "index_put": lambda x, i, s: x.index_put((i,), s),
    "index_put, added": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "index_select": lambda x, i, s: x.index_select(0, i),
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s),
    "index_reduce": lambda x, i, s: x.index_reduce(0, i, s, "amax"),
    "index_fill": lambda x, i, s: x.index_fill(0, i, 1.0),
    "index_fill of a tensor": lambda x, i, s: x.index_fill(0, i, torch.tensor(1.0)),
    "gather": lambda x, i, s: x.gather(0, i[:, None].expand(s.shape)),
    "scatter": lambda x, i, s: x.scatter(0, i[:, None].expand(s.shape), s),
    "scatter of a number": lambda x, i, s: x.scatter(0, i[:, None].expand(s.shape), 1.0),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand(s.shape), s),
    "scatter_reduce": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand(s.shape), s, "amax"),
    "embedding": lambda x, i, s: F.embedding(i, x),
    "take": lambda x, i, s: x.take(i),
    "no rows": lambda x, i, s: x[:0][i, :0],
    "selected of no rows": lambda x, i, s: x[:0].index_select(0, i),
}
POSITIONS = ([4, -11, 99], [4, -1, 0], [4, 0, 1])


def outcome(function: Callable[..., Tensor], *args: Any) -> Any:
    try:
        return function(*args).shape
    except (IndexError, RuntimeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_positions_are_looked_at_where_eager_does(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, backend=backend, fullgraph=True, options={"strict": True})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # index_reduce is in beta
        for width in (0, 2):
            for positions in POSITIONS:
                x, source = torch.zeros(ROWS, width), torch.zeros(len(positions), width)
                index = torch.tensor(positions)
                assert outcome(compiled, x, index, source) == outcome(program, x, index, source), (width, positions)
