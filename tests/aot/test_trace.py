"""Nothing of a trace stays once nobody has its result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from stator.aot.trace import trace
from stator.base.errors import Unsupported
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from tests.aot.models import Function, captured

pytestmark = pytest.mark.usefixtures("few_objects")

Program = Callable[..., object]


def graphs() -> list[fx.Graph]:
    gc.collect()
    return [found for found in gc.get_objects() if issubclass(type(found), fx.Graph)]


def since(before: list[fx.Graph]) -> list[fx.Graph]:
    """Graphs that are there now and were not before; those of other tests may go at any time."""
    known = set(map(id, before))
    return [graph for graph in graphs() if id(graph) not in known]


def run(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    trace(captured(module, inputs), inputs, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * w
    y[1:].mul_(w)
    y.t().add_(1)
    return y.sigmoid()


PROGRAMS: dict[str, Program] = {
    "leaf": lambda x, w: x * w,
    "product": lambda x, w: torch.tanh(x @ w.view(4, 1)),
    "views": lambda x, w: w.expand(3, 4).t()[1:].exp() * x.sum(),
    "writes": written,
    "several": lambda x, w: (x * w, (x + w).exp(), x[0]),
    "dropout": lambda x, w: F.dropout(x * w, 0.5),
    "norm": lambda x, w: F.layer_norm(x, (4,), w, w),
    "inner": lambda x, w: torch.autograd.grad((x * w).sum(), w, create_graph=True)[0] * w,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["data", "leaf", "result", "view"])
def test_nothing_stays_of_a_trace(name: str, kind: str) -> None:
    x = torch.randn(3, 4, requires_grad=kind != "data")
    x = {"result": x * 1, "view": (x * 1)[:]}.get(kind, x)
    module = Function(PROGRAMS[name], torch.randn(4))
    run(module, [x])  # what is made once for all traces
    before = graphs()
    for _ in range(3):
        run(module, [x])
    assert not since(before)


def test_nothing_stays_of_a_trace_that_begins_anew() -> None:
    """Two inputs in one memory, of which one is written to."""
    whole = torch.randn(3, 4)

    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y * w

    module = Function(f, torch.randn(4))
    run(module, [whole[:2], whole[1:]])
    before = graphs()
    run(module, [whole[:2], whole[1:]])
    assert not since(before)


def test_nothing_stays_of_a_trace_that_is_refused() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x * w).exp()
        z = y * 2
        y.add_(1)  # what the backward of `exp` needs
        return z

    module = Function(f, torch.randn(4))
    x = torch.randn(3, 4)
    before = graphs()
    for _ in range(2):
        with pytest.raises(Unsupported):
            run(module, [x])
    assert not since(before)
