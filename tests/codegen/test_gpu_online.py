"""Rows that no block covers, on a GPU: they are read once for what softmax and variance need, and are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import stator

pytestmark = pytest.mark.gpu

INF = float("inf")
Program = Callable[[torch.Tensor], torch.Tensor]

PROGRAMS: dict[str, Program] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x * 2, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "columns": lambda x: torch.softmax(x.t(), 0),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "variance": lambda x: torch.var(x, -1),
    "batch_norm": lambda x: functional.batch_norm(x.view(8, 5, -1), None, None, training=True),
    "column_variance": lambda x: torch.var(x.t(), 0, keepdim=True),
}


def check(program: Program, x: torch.Tensor, call: Program) -> None:
    found, eager, exact = call(x), program(x), program(x.double())
    assert torch.equal(found.isnan(), eager.isnan()) and torch.equal(found.isinf(), eager.isinf())
    known = exact.isfinite() & eager.isfinite()
    wrong, allowed = (torch.where(known, y.double() - exact, 0).abs().max().item() for y in (found, eager))
    scale = exact[known].abs().max().item() if known.any() else 1.0
    eps = torch.finfo(x.dtype).eps
    assert wrong <= 2 * allowed + 4 * eps * max(scale, 1), (wrong, allowed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    call = stator.compile(PROGRAMS[name], options={"cache": False})
    for shape in ((40, 20000), (40, 50000), (40, 12345)):  # the second and third have symbolic sizes
        x = torch.randn(shape, device="cuda", dtype=dtype) * 3 + 5
        check(PROGRAMS[name], x, call)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "log_softmax"])
def test_rows_with_infinities(name: str) -> None:
    """Masked beginnings, rows that are masked as a whole, infinities, NaN."""
    x = torch.randn(40, 20000, device="cuda")
    x[0, :15000], x[1], x[2, 7], x[3, 19999] = -INF, -INF, INF, float("nan")
    x[4, 1:] = -INF
    x[5] -= 300
    x[6, ::2] += 200
    check(PROGRAMS[name], x, stator.compile(PROGRAMS[name], options={"cache": False}))
