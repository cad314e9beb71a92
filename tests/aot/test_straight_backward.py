"""Backward in C: taken where it is a graph and no more, and left to Python, with eager's results, anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator import _native
from stator.aot.runtime import CompiledFunction


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A list that grows by one for each backward that Python runs."""
    calls: list[int] = []
    original = CompiledFunction.backward

    def counted(ctx: Any, *tangents: Any) -> Any:
        calls.append(1)
        return original(ctx, *tangents)

    monkeypatch.setattr(CompiledFunction, "backward", staticmethod(counted))
    yield calls


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "layer norm": lambda x, w: F.layer_norm(x, (6,), w, w),  # eager looks at the bias, which ours does not save
    "softmax": lambda x, w: (x * w).softmax(-1),
    "pool": lambda x, w: F.adaptive_avg_pool1d(x * 1.0, 2) + w[:2],  # saves nothing
}


def operands() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 6, requires_grad=True), torch.randn(6, requires_grad=True)


def check(function: Callable[..., Tensor], act: Callable[[Tensor, tuple[Tensor, Tensor]], Any]) -> None:
    """That an act on the result gives the same as in eager, or raises the same."""
    found: list[Any] = []
    for call in (function, stator.compile(function, fullgraph=True)):
        given = operands()
        try:
            found.append(act(call(*given), given))
        except RuntimeError as error:
            found.append(str(error)[:40])
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(found[1], found[0])


def gradients(result: Tensor, given: tuple[Tensor, Tensor], **options: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(result, given, torch.linspace(-1, 2, result.numel()).view(result.shape), **options)


def test_states_are_read() -> None:
    assert _native.read_state("anomaly_mode") == 0
    with torch.autograd.set_detect_anomaly(True):
        assert _native.read_state("anomaly_mode") == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_plain_gradients_need_no_python(name: str, by_python: list[int]) -> None:
    check(FUNCTIONS[name], gradients)
    assert not by_python


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kept_graph_runs_again(name: str, by_python: list[int]) -> None:
    def twice(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        return gradients(result, given, retain_graph=True), gradients(result, given)

    check(FUNCTIONS[name], twice)
    assert not by_python


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_that_is_not_kept_says_so(name: str) -> None:
    check(FUNCTIONS[name], lambda result, given: [gradients(result, given) for _ in range(2)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("written", range(2))
def test_writes_before_backward_are_seen(name: str, written: int) -> None:
    def act(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        with torch.no_grad():
            given[written].add_(1)
        return gradients(result, given)

    check(FUNCTIONS[name], act)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_expanded_tangent_is_laid_out_by_python(name: str, by_python: list[int]) -> None:
    check(FUNCTIONS[name], lambda result, given: torch.autograd.grad(result.sum(), given))
    assert by_python


def test_autocast_and_anomalies_are_left_to_python(by_python: list[int]) -> None:
    def under_autocast(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            return gradients(result, given)

    def in_anomaly_mode(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return gradients(result, given)

    for count, act in enumerate((under_autocast, in_anomaly_mode), 1):
        check(FUNCTIONS["softmax"], act)
        assert len(by_python) >= count


def test_second_derivatives_are_left_to_python(by_python: list[int]) -> None:
    def act(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        first = torch.autograd.grad(result.square().sum(), given, create_graph=True)
        return torch.autograd.grad(first[0].sum() + first[1].sum(), given)

    check(FUNCTIONS["softmax"], act)
    assert by_python


def test_a_batch_of_tangents_is_left_to_python(by_python: list[int]) -> None:
    def act(result: Tensor, given: tuple[Tensor, Tensor]) -> Any:
        tangents = torch.linspace(-1, 2, 3 * result.numel()).view(3, *result.shape)
        return torch.autograd.grad(result, given, tangents, is_grads_batched=True)

    check(FUNCTIONS["softmax"], act)
    assert by_python
