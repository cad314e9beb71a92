"""How often the program has written to a result, `Tensor._version`: as in eager, in the program and behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


@program
def written(x: torch.Tensor) -> Any:
    t = x + 1
    t.mul_(2)
    return t, t._version


@program
def through_a_view(x: torch.Tensor) -> Any:
    t = x + 1
    row = t[1:]
    row.mul_(2)
    t.add_(1).zero_()
    return t, row, row._version, t.detach()


@program
def under_other_counters(x: torch.Tensor) -> Any:
    t = x.sum(0)
    t.data.fill_(3.0)
    with torch.no_grad():
        t.exp_()
    return t, t.data


@program
def by_parts(x: torch.Tensor) -> Any:
    t = torch.zeros(3, 4)
    for i in range(3):
        t[i] = x[i]
    return t, x * 2, t._version


@program
def inside_of_torch(x: torch.Tensor) -> Any:
    return torch.stft(x.flatten(), 4, return_complex=True, window=torch.ones(4))


@program
def read_after_a_break(x: torch.Tensor) -> Any:
    t = x * 2
    t.sub_(1).neg_()
    stator.graph_break()
    before = t._version
    t.add_(1)
    return t, before, t._version


@program
def saved_for_backward(x: torch.Tensor) -> Any:
    t = x * 3
    y = t.mul_(2).sigmoid_()
    return y, y * x


@program
def decided_by(x: torch.Tensor) -> Any:
    t = x * 2
    return t + 1 if t._version else t.add_(3)


def seen(function: Callable[..., Any], x: torch.Tensor) -> list[Any]:
    found = function(x)
    found = found if isinstance(found, tuple) else (found,)
    tensors = [item for item in found if isinstance(item, torch.Tensor)]
    told = [(t._version, t.detach().clone()) if isinstance(t, torch.Tensor) else t for t in found]
    graded = [t.abs().sum() for t in tensors if t.requires_grad]
    if graded:
        sum(graded).backward()
        told.append(x.grad)
    return told


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_versions(function: Callable[..., Any], backend: str) -> None:
    compiled = stator.compile(function, backend=backend)
    for graded in (False, True):
        x = torch.randn(3, 4)
        mine, theirs = (seen(f, x.clone().requires_grad_(graded)) for f in (compiled, function))
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)


def test_a_write_to_a_result_is_noticed_by_backward() -> None:
    compiled = stator.compile(saved_for_backward)
    for function in (compiled, saved_for_backward):
        x = torch.randn(3, 4, requires_grad=True)
        y, _ = function(x)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_inference_tensors_have_none() -> None:
    with torch.inference_mode():
        t = stator.compile(under_other_counters)(torch.randn(3, 4))[0]
    with pytest.raises(RuntimeError, match="version"):
        t._version  # noqa: B018


def test_one_that_is_computed_ends_no_graph() -> None:
    report = stator.explain(stator.compile(written))(torch.randn(3, 4))
    assert not report.breaks
