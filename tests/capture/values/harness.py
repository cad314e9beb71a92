"""Runs a function eagerly and captured, on equal arguments, and compares results, changed arguments and breaks."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from stator.base.errors import CaptureError
from stator.capture import frames


def eager(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
    """The backend that runs the graph as it is."""
    return module.forward


class Captured:
    """What capture made of one call."""

    def __init__(self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.entry = frames.convert(function, args, kwargs, eager, fullgraph=True)
        self.run = types.FunctionType(
            self.entry.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self.run.__kwdefaults__ = function.__kwdefaults__
        self.guards = [str(guard) for guard in self.entry.guards]

    @property
    def targets(self) -> list[Any]:
        """The calls of the graph, in order."""
        nodes = self.entry.graphs[0].module.graph.nodes
        return [node.target for node in nodes if node.op in ("call_function", "call_method")]


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Captured:
    """Captures a call as one graph."""
    assert isinstance(function, types.FunctionType)
    return Captured(function, args, kwargs)


def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Captured:
    """The captured function does what the function does."""
    theirs, their_kwargs = copy.deepcopy((args, kwargs))
    captured = capture(function, *args, **kwargs)
    assert captured.entry.graphs, "nothing was captured"
    torch.manual_seed(3)
    expected = function(*theirs, **their_kwargs)
    torch.manual_seed(3)
    got = captured.run(*args, **kwargs)
    same(got, expected)
    same(args, theirs)
    same(kwargs, their_kwargs)
    return captured


def refused(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Why a call cannot be captured."""
    try:
        capture(function, *args, **kwargs)
    except CaptureError as error:
        return error.reason
    raise AssertionError("it was captured")


def same(got: Any, expected: Any, path: str = "result") -> None:
    """Equal in type, structure and numbers."""
    assert type(got) is type(expected), f"{path}: {type(got)} is not {type(expected)}"
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert got.requires_grad == expected.requires_grad, path
        return
    if isinstance(expected, dict):
        assert list(map(str, got)) == list(map(str, expected)), path
        for key, other in zip(got, expected, strict=True):
            same(got[key], expected[other], f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple) or type(expected).__name__ == "deque":
        assert len(got) == len(expected), path
        for index, (mine, other) in enumerate(zip(got, expected, strict=True)):
            same(mine, other, f"{path}[{index}]")
    elif isinstance(expected, torch.nn.Module):
        same(got.state_dict(), expected.state_dict(), path)
    elif not hasattr(expected, "__dict__") or isinstance(expected, type | types.FunctionType | types.ModuleType):
        assert got == expected, f"{path}: {got!r} is not {expected!r}"
    if hasattr(expected, "__dict__") and not isinstance(expected, type | types.FunctionType | torch.nn.Module):
        same(vars(got), vars(expected), f"{path}.__dict__")
