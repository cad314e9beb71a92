"""Several results cut from one product: gradients flow through each of them, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stator

Tensor = torch.Tensor


def beside_what_uses_it(x: Tensor, w: Tensor, v: Tensor) -> Any:
    a, b, c = torch.split(F.linear(x, w), [2, 2, 2], -1)
    return F.softplus(a @ v), b, c


def slices(x: Tensor, w: Tensor, v: Tensor) -> Any:
    p = F.linear(x, w)
    return F.softplus(p[..., :2] @ v), p[..., 2:4], p[..., 4:]


def with_the_whole(x: Tensor, w: Tensor, v: Tensor) -> Any:
    p = torch.matmul(x, w.t())
    return p, p[..., 2:4], p[..., 4:]


def through_another_view(x: Tensor, w: Tensor, v: Tensor) -> Any:
    p = F.linear(x, w)
    return p.view(10, 6).sum(), p[..., :2], p.view(10, 6).view(2, 5, 6)[..., 4:]


def beside_its_data(x: Tensor, w: Tensor, v: Tensor) -> Any:
    p = F.linear(x, w)
    return (p.detach().sum() * p).sum(), p[..., :2], p.data[..., 4:]


def gradient(function: Callable[..., Any]) -> tuple[Tensor, list[bool]]:
    """The gradient of the weight, and which results require one; in doubles, for some are sums times sums."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    w = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    first, second, third = function(x, w, v)
    (first.sum() * (second[..., :2] * third[..., :2])).sum().backward()
    assert w.grad is not None
    return w.grad, [result.requires_grad for result in (first, second, third)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "function", [beside_what_uses_it, slices, with_the_whole, through_another_view, beside_its_data]
)
def test_gradients_through_each(function: Callable[..., Any], backend: str) -> None:
    expected, flags = gradient(function)
    got, ours = gradient(stator.compile(function, backend=backend, fullgraph=True, options={"strict": True}))
    torch.testing.assert_close(got, expected)
    assert ours == flags


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_gradients_across_a_break() -> None:
    def loss(x: Tensor, w: Tensor, v: Tensor) -> Any:
        first, second, third = beside_what_uses_it(x, w, v)
        stator.graph_break("here")
        return first * 1, second * 1, third * 1

    expected, _ = gradient(beside_what_uses_it)
    got, _ = gradient(stator.compile(loss, backend="aot_eager"))
    torch.testing.assert_close(got, expected)


def tied(i: Tensor, w: Tensor) -> Any:
    rows = F.embedding(i, w)
    return (rows / (rows.detach() * 0)) @ w.t(), rows * 2


def twice_tied(i: Tensor, w: Tensor) -> Any:
    rows = F.embedding(i, w)
    ends = (rows / (rows.detach() * 0)) @ w.t() + (F.embedding(i + 1, w) / (rows * 0)).sum()
    return ends, rows * 2, (rows * 3).sin()


@pytest.mark.parametrize("function", [tied, twice_tied])
def test_what_is_not_differentiated_gives_a_shared_table_no_numbers(function: Callable[..., Any]) -> None:
    start = torch.randn(40, 6)
    i = torch.randint(0, 39, (5,))

    def gradient_of_one(run: Callable[..., Any], k: int) -> Tensor:
        w = start.clone().requires_grad_()
        run(i, w)[k].square().sum().backward()
        assert w.grad is not None
        return w.grad

    compiled = stator.compile(function, fullgraph=True)
    for k in range(1, len(function(i, start))):
        expected = gradient_of_one(function, k)
        assert expected.isfinite().all()
        torch.testing.assert_close(gradient_of_one(compiled, k), expected)
    torch.testing.assert_close(gradient_of_one(compiled, 0), gradient_of_one(function, 0), equal_nan=True)
