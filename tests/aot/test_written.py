"""Operators of the program that write to arguments and do not return them: one graph, with every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.aot.written import written_form


@torch.library.custom_op("stator_written_tests::into", mutates_args=("out", "count"))
def into(x: Tensor, out: Tensor, factor: float, count: Tensor) -> tuple[Tensor, Tensor]:
    out.copy_(x.sin() * factor)
    count.add_(1)
    return x.cos(), x + 1


@into.register_fake
def _shapes(x: Tensor, out: Tensor, factor: float, count: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("stator_written_tests::put", mutates_args=("cache",))
def put(cache: Tensor, positions: Tensor, values: Tensor) -> None:
    cache.index_copy_(0, positions, values)


LIBRARY = torch.library.Library("stator_written_tests", "FRAGMENT")
LIBRARY.define("bump.by(Tensor(a!) x, *, int by=2) -> ()")
LIBRARY.define("all_of(Tensor(a!)[] x) -> ()")


@torch.library.impl(LIBRARY, "bump.by", "CompositeExplicitAutograd")
def _bump(x: Tensor, *, by: int = 2) -> None:
    x.add_(by)


def results_beside(n: int) -> tuple[Any, ...]:
    return torch.randn(n), torch.zeros(())


def beside(x: Tensor, count: Tensor) -> Any:
    out = torch.empty_like(x)
    a, b = into(x * 2, out, 1.5, count)
    return a + b + out, count * 1


def cached(n: int) -> tuple[Any, ...]:
    return torch.zeros(n, 2), torch.randn(2, 2), torch.tensor([0, 1])


def cache(memory: Tensor, x: Tensor, positions: Tensor) -> Any:
    put(memory, positions, x * 2)
    total = memory.sum(0)
    put(memory[1:], positions, x)
    torch.ops.stator_written_tests.bump(memory, by=3)
    return total, memory * 1


def transposed(memory: Tensor, x: Tensor, positions: Tensor) -> Any:
    part = memory[:2].t()
    put(part, positions, x)
    return part.sum(), memory + 1


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize(("program", "make"), [(beside, results_beside), (cache, cached), (transposed, cached)])
def test_one_graph(program: Callable[..., Any], make: Callable[[int], Any], backend: str, dynamic: bool | None) -> None:
    for _ in ("cold", "warm"):
        compiled = stator.compile(program, backend=backend, dynamic=dynamic, fullgraph=True, options={"strict": True})
        for n in (3, 4, 5):
            given = make(n)
            copies = [tensor.clone() for tensor in given]
            torch.testing.assert_close(compiled(*given), program(*copies))
            torch.testing.assert_close(list(given), copies)
        stator.reset()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_what_it_raises_is_raised(backend: str) -> None:
    """With what was written before, as in eager."""
    given, copies = ([*cached(3)[:2], torch.tensor([0, 7])] for _ in range(2))
    copies[1] = given[1].clone()
    for function, arguments in ((stator.compile(cache, backend=backend), given), (cache, copies)):
        with pytest.raises(IndexError):
            function(*arguments)
    torch.testing.assert_close(given, copies)


def test_gradients() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
            put(y, torch.tensor([0]), y[1:].clone())
        return (y * x).sum()

    x = torch.randn(2, 3, requires_grad=True)
    mine, theirs = (torch.autograd.grad(f(x), x)[0] for f in (stator.compile(program, fullgraph=True), program))
    torch.testing.assert_close(mine, theirs)


def test_lists_have_no_such_form() -> None:
    assert written_form(torch.ops.stator_written_tests.all_of.default) is None
    assert written_form(torch.ops.stator_written_tests.put.default) is not None
