"""Runs a program with breaks both ways: result or exception, printed text, changed arguments, gradients, graphs."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import torch

import stator
from stator.base.errors import FallbackWarning
from tests.capture.changing import compare


class Counting:
    """A backend that runs graphs as they are, and counts them and their calls."""

    def __init__(self) -> None:
        self.graphs = 0
        self.calls = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        self.graphs += 1

        def call(*args: Any) -> Any:
            self.calls += 1
            return gm(*args)

        return call


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Everything that can be seen of a call."""
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(7)
    seen: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            seen["result"] = fn(*args, **kwargs)
        except Exception as error:
            chain = error.__cause__, error.__context__
            seen["error"] = type(error), str(error), [(type(link), str(link)) for link in chain]
    seen["printed"] = printed.getvalue()
    seen["arguments"] = args, kwargs
    seen["modes"] = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return seen


def check(fn: Callable[..., Any], *args: Any, graphs: int | None = None, calls: int = 3, **kwargs: Any) -> Counting:
    """Calls the compiled function several times, each time as eager; `graphs` are those that the first call makes."""
    backend = Counting()
    stator.reset()
    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for number in range(calls):
        expected = outcome(fn, args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            found = outcome(compiled, args, kwargs)
        assert set(found) == set(expected), (found.get("error"), expected.get("error"))
        for name in expected:
            compare(found[name], expected[name])
        if number == 0 and graphs is not None:
            assert backend.graphs == graphs, f"{backend.graphs} graphs"
    return backend


def asserting(x: torch.Tensor) -> torch.Tensor:
    """Stands here because pytest rewrites assertions in test files."""
    y = x * 2
    assert y.sum() > 0, "must be positive"
    return y + 1


def risky(n: int) -> int:
    """Prints, and raises for great numbers."""
    print("risky", n)
    if n > 1:
        raise ValueError(f"too big: {n}")
    return n
