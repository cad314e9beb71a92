"""A captured graph as calls that C makes: what is called with what, what is let go of when, and errors."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from stator._native import EagerGraph
from stator.aot.eager_graph import runner

Call = tuple[str, Any, tuple[Any, ...], tuple[str, ...], tuple[int, ...]]


def call(kind: str, target: Any, *operands: Any, names: tuple[str, ...] = (), dead: tuple[int, ...] = ()) -> Call:
    return kind, target, operands, names, dead


def test_functions_methods_and_sequences() -> None:
    graph = EagerGraph(
        2,
        (
            call("function", operator.add, 0, 1),
            call("method", "sum", 2, (-1,), (True,), names=("dim", "keepdim"), dead=(2,)),
            call("list", None, 0, ("constant",)),
            call("tuple", None, 4, 1),
        ),
        (3, 4, 5, (7,), 0),
    )
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    total, listed, paired, seven, first = graph(x, y)
    assert torch.equal(total, (x + y).sum(-1, keepdim=True))
    assert listed == [x, "constant"] and paired == (listed, y) and seven == 7 and first is x


def test_values_go_after_their_last_use() -> None:
    class Value:
        pass

    alive: list[Any] = []

    def make(x: Any) -> Value:
        made = Value()
        alive.append(weakref.ref(made))
        return made

    def look(*given: Any) -> list[bool]:
        return [reference() is not None for reference in alive]

    graph = EagerGraph(
        1,
        (call("function", make, 0), call("function", look, 1, dead=(1,)), call("function", look, 0, dead=())),
        (2, 3),
    )
    assert graph(0) == ([True], [False])


def test_an_error_leaves_nothing_behind() -> None:
    made: list[Any] = []

    def make() -> torch.Tensor:
        value = torch.ones(2)
        made.append(weakref.ref(value))
        return value

    graph = EagerGraph(0, (call("function", make), call("function", operator.truediv, (1,), (0,))), (0,))
    with pytest.raises(ZeroDivisionError):
        graph()
    assert made[0]() is None
    with pytest.raises(TypeError, match="0 arguments"):
        graph(1)
    with pytest.raises(AttributeError):
        EagerGraph(1, (call("method", "no_such_method", 0),), (1,))(torch.ones(2))


@pytest.mark.parametrize(
    ("inputs", "calls", "results", "error"),
    [
        (1, (call("function", abs, 1),), (0,), ValueError),  # of a call that has not run
        (1, (call("function", abs, 0, dead=(1,)),), (1,), ValueError),  # given up
        (1, (call("function", abs, 0, dead=(0,)),), (1,), ValueError),  # an input
        (1, (call("function", abs, 0, dead=(1, 1)),), (0,), ValueError),
        (1, (call("method", "abs", names=()),), (0,), ValueError),  # of nothing
        (1, (call("function", abs, 0, names=("x", "y")),), (0,), ValueError),
        (1, (call("module", abs, 0),), (0,), ValueError),
        (300, (), (), OverflowError),
    ],
)
def test_wrong_calls_are_refused(inputs: int, calls: Any, results: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        EagerGraph(inputs, calls, results)


class Parts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        joined = torch.cat([x * self.weight, y], dim=-1)
        low, high = joined.split([2, 4], dim=-1)
        return joined.permute(1, 0), low + high[:, :2], torch.stack((low, low)), x


class Sliced(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x[: y.shape[0]],)


@pytest.mark.parametrize(("module", "kind"), [(Parts, EagerGraph), (Sliced, None)])
def test_it_gives_what_the_text_of_the_graph_gives(module: Callable[[], torch.nn.Module], kind: type | None) -> None:
    torch.manual_seed(0)
    gm = fx.symbolic_trace(module())
    found = runner(gm)
    assert isinstance(found, kind) if kind else not isinstance(found, EagerGraph)
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    for made, expected in zip(found(x, y), gm(x, y), strict=True):
        assert torch.equal(made, expected) and made.stride() == expected.stride()
        assert made is expected or made.grad_fn.name() == expected.grad_fn.name()


def test_parameters_are_those_of_the_module() -> None:
    gm = fx.symbolic_trace(Parts())
    found, x, y = runner(gm), torch.randn(4, 3), torch.randn(4, 3)
    with torch.no_grad():
        gm.weight.zero_()
    assert not found(x, y)[1].isnan().any() and torch.equal(found(x, y)[2][0], torch.zeros(4, 2))
    found(x, y)[1].sum().backward()
    assert gm.weight.grad is not None
