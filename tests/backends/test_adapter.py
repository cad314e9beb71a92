"""stator as a backend of torch.compile: values, gradients, and sizes passed as inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stator import compile as stator_compile
from stator import graph_break
from stator.backends.adapter import stator, with_numbers


def test_numbers_are_written_into_the_graph() -> None:
    def f(n: int, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(n, -1) * n

    gm = torch.fx.symbolic_trace(f)
    x = torch.randn(6)
    special = with_numbers(gm, [3, x])
    assert [n.name for n in special.graph.find_nodes(op="placeholder")] == ["x"]
    torch.testing.assert_close(special(x), f(3, x))
    torch.testing.assert_close(gm(2, x), f(2, x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own compiler gives some while it is imported
def test_torch_compile_takes_it() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).sum(-1)

    compiled = torch.compile(f, backend=stator, dynamic=True)
    w = torch.randn(5, 4, requires_grad=True)
    for rows in (3, 6):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(compiled(x, w), f(x, w))
        (got,) = torch.autograd.grad(compiled(x, w).sum(), w)
        (expected,) = torch.autograd.grad(f(x, w).sum(), w)
        torch.testing.assert_close(got, expected)


GRAPHS: list[str] = []


def counted(gm: Any, examples: Any) -> Any:
    GRAPHS.append("torch")
    return gm.forward


def counted_here(gm: Any, examples: Any) -> Any:
    GRAPHS.append("stator")
    return gm.forward


@torch.compile(backend=counted)
def theirs(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


def ours(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    graph_break()
    return theirs(y) * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [False, True])
def test_torch_compile_around_what_is_compiled(before: bool) -> None:
    """It captures neither our capturing nor the code that we have written; its own functions inside are its own."""
    compiled = stator_compile(ours, backend=counted_here)
    x = torch.randn(3)
    expected = x.sin().cos() * 2
    GRAPHS.clear()
    torch._dynamo.reset()
    if before:
        torch.testing.assert_close(compiled(x), expected)
    around = torch.compile(compiled, backend=counted)
    for _ in range(2):
        torch.testing.assert_close(around(x), expected)
    assert sorted(GRAPHS) == ["stator", "stator", "torch"]
    torch.compile(lambda x: x.tan(), backend=counted)(x)
    assert GRAPHS.count("torch") == 2
