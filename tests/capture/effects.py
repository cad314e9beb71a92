"""What the tests of side effects share: programs with a world of their own, run compiled and uncompiled.

A maker gives a program and a way to look at what it changes. Both ways of running get a world from one maker; after
each of some calls, results, arguments, worlds, warnings and printed text must be equal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning
from tests.capture.changing import compare, outcome

CALLS = 3

Made = tuple[Callable[..., Any], Callable[[], Any]]
Maker = Callable[[], Made]


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


class Box:
    """An object to change."""

    def __init__(self) -> None:
        self.value: Any = 0
        self.items: list[Any] = []

    def __repr__(self) -> str:
        return f"Box({vars(self)})"


def check(maker: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs a program both ways."""
    logs = []
    for compiling in (False, True):
        torch.manual_seed(0)
        fn, look = maker()
        if compiling:
            fn = stator.compile(fn, backend="eager", options={"strict": True})
        log: list[Any] = []
        for _ in range(CALLS):
            value = x()
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always", UserWarning)
                warnings.simplefilter("ignore", FallbackWarning)
                result = outcome(fn, (value,), {})
            world = look()
            log.append((result, value, snapshot(world), [str(w.message) for w in seen], capsys.readouterr().out))
        logs.append(log)
    compare(logs[1], logs[0])


def snapshot(world: Any) -> Any:
    """A copy, tensors and all."""
    if isinstance(world, torch.Tensor):
        return world.detach().clone()
    if isinstance(world, list | tuple):
        return type(world)([snapshot(item) for item in world])
    if isinstance(world, dict):
        return {key: snapshot(item) for key, item in world.items()}
    return repr(world) if isinstance(world, Box) else world
