"""Backends that are not our own are taken at their word once, and looked at: no wrong result may come of them.

What such a backend gives must be callable, and each call must give as many tensors as the graph has outputs; a single
tensor in place of a tuple would otherwise be taken apart along its first dimension, without a word.
Neighbours: `registry.py` wraps what users and other packages enter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.backends.atomic import atomic
from stator.base.errors import BackendError, StatorError

Compiled = Callable[..., Any]


def checked(name: str, compile_graph: Callable[[Any, list[Any]], Any], gm: Any, example_inputs: list[Any]) -> Compiled:
    """What the backend makes of a graph, or `BackendError`."""
    try:
        compiled = compile_graph(gm, example_inputs)
    except StatorError:
        raise
    except Exception as error:
        raise BackendError(name, f"raised {type(error).__name__}: {error}") from error
    if not callable(compiled):
        raise BackendError(name, f"gave {_describe(compiled)}, which is not callable")
    if compiled is gm or getattr(compiled, "__self__", None) is gm or not isinstance(gm, fx.GraphModule):
        return atomic(gm, compiled, example_inputs)
    (results,) = gm.graph.output_node().args
    watched = Watched(name, compiled, len(results) if isinstance(results, (tuple, list)) else 1)
    return atomic(gm, watched, example_inputs)


class Watched:
    """A callable whose results are counted at every call."""

    __slots__ = ("compiled", "count", "name")

    def __init__(self, name: str, compiled: Compiled, count: int) -> None:
        self.name = name
        self.compiled = compiled
        self.count = count

    def __call__(self, *tensors: torch.Tensor) -> Any:
        results = self.compiled(*tensors)
        if not isinstance(results, (tuple, list)):
            raise BackendError(self.name, f"compiled to a function that gave {_describe(results)}, not a tuple")
        if len(results) != self.count:
            raise BackendError(self.name, f"compiled to a function that gave {len(results)} results, not {self.count}")
        for result in results:
            if not isinstance(result, torch.Tensor):
                raise BackendError(self.name, f"compiled to a function with {_describe(result)} among its results")
        return results


def _describe(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
