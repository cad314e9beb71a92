"""What the tests of symbolic sizes share: a backend that counts, and calls compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import stator
from stator.base import log
from stator.capture.entry import versions_of


class Counting:
    """A backend that runs graphs as they are, and keeps them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        assert all(isinstance(x, torch.Tensor | int | float) for x in inputs)
        self.graphs.append(gm)
        return gm.forward


class Calls:
    """The calls of one compiled function, each compared with eager."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function = function
        self.backend = Counting()
        self.compiled = stator.compile(function, backend=self.backend, **options)
        self.guards: list[list[str]] = []
        self.recompiles: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with log.collect() as recorder:
            result = self.compiled(*args, **kwargs)
        self.guards += [record["guards"] for record in recorder.of(log.GUARDS)]
        self.recompiles += [record["reason"] for record in recorder.of(log.RECOMPILE)]
        same(result, self.function(*args, **kwargs))
        return result

    def all(self, calls: Sequence[tuple[Any, ...]]) -> Calls:
        for args in calls:
            self(*args)
        return self

    @property
    def compiles(self) -> int:
        """How many versions there are."""
        return len(versions_of(self.compiled))

    @property
    def conditions(self) -> list[str]:
        """The guards of the newest version that compare sizes."""
        words = (".size()", ".stride()", "L['n']")
        return [g for g in self.guards[-1] if any(w in g for w in words) and "__dict__" not in g and "type(" not in g]


def same(result: Any, expected: Any) -> None:
    """Equal in type, structure and values."""
    assert type(result) is type(expected), (result, expected)
    if isinstance(expected, torch.Tensor):
        assert result.shape == expected.shape
        torch.testing.assert_close(result, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(result) == len(expected)
        for ours, theirs in zip(result, expected, strict=True):
            same(ours, theirs)
    elif isinstance(expected, dict):
        assert list(result) == list(expected)
        for key, value in expected.items():
            same(result[key], value)
    else:
        assert result == expected


def rand(*sizes: int) -> torch.Tensor:
    """A random tensor."""
    return torch.rand(*sizes) + 0.5
