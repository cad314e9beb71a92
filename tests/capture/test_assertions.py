"""Branches on data where one side only raises: one graph, and eager's exception where the data is bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import CaptureError

Fn = Callable[[torch.Tensor], Any]


def asserts(x: torch.Tensor) -> torch.Tensor:
    assert (x > 0).all(), f"smallest {x.min().item()}"
    return x.log()


def raises(x: torch.Tensor) -> torch.Tensor:
    if (x < 0).any() or x.sum() == 0:
        raise ValueError("negative", x.shape)
    return x.sqrt()


def raises_below(x: torch.Tensor) -> torch.Tensor:
    def check(y: torch.Tensor) -> None:
        with torch.no_grad():
            if not (y > 0).all():
                message = "bad"
                raise KeyError(message) from None

    check(x)
    return x * 2


def writes_before(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    if x.max() > 5:
        raise RuntimeError("large")
    return x * torch.rand(3)


def normal(x: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Normal(x, x, validate_args=True).log_prob(x)


GOOD, BAD = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -9.0, 30.0])


@pytest.mark.parametrize("fn", [asserts, raises, raises_below, writes_before, normal])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_as_eager(fn: Fn, backend: str) -> None:
    options = {} if backend == "eager" else {"eager_random": True}
    compiled = stator.compile(fn, backend=backend, fullgraph=True, options=options)
    for data in (GOOD, BAD, GOOD, BAD):
        found = []
        for one in (fn, compiled):
            x = data.clone()
            torch.manual_seed(3)
            try:
                found.append((one(x), x, torch.rand(1)))
            except Exception as error:
                found.append((type(error), str(error).split("\n")[0], x, torch.rand(1)))
        assert len(found[0]) == len(found[1])
        for want, got in zip(*found, strict=True):
            assert torch.allclose(want, got) if isinstance(want, torch.Tensor) else want == got


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_handled_exceptions_are_both_ways_of_the_program() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            if x.sum() < 0:
                raise ValueError
        except ValueError:
            return -x
        return x

    with pytest.raises(CaptureError, match="depends on the data"):
        stator.compile(fn, fullgraph=True)(GOOD)
    compiled = stator.compile(fn)
    for data in (GOOD, BAD - 30):
        assert torch.equal(compiled(data), fn(data))


def test_other_branches_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            x = x + 1
            if x.shape[0] > 100:
                raise ValueError
        return x

    with pytest.raises(CaptureError, match="depends on the data"):
        stator.compile(fn, fullgraph=True)(GOOD)
