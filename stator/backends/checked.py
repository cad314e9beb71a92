"""Backends that are not our own are taken at their word once, and looked at: no wrong result may come of them.

What such a backend gives must be callable, and each call must give as many tensors as the graph has outputs; a single
tensor in place of a tuple would otherwise be taken apart along its first dimension, without a word.
A graph with symbols serves many sizes. A backend that says `dynamic = True` gets it with symbolic example inputs: what
it decides about them becomes a guard. Any other may build what it sees into its result; it gets graphs of numbers, with
a guard for each, unless it gives graphs back as they are.
Neighbours: `registry.py` wraps what users and other packages enter; `capture/frames.py` captures again what is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.backends.atomic import atomic
from stator.base.errors import BackendError, FallbackWarning, StatorError, Unsupported

Compiled = Callable[..., Any]


class Checked:
    """One backend as one call of `compile` uses it: called with a graph and example inputs."""

    __slots__ = ("as_they_are", "asked", "compile_graph", "dynamic", "name")

    def __init__(self, name: str, compile_graph: Callable[[Any, list[Any]], Any], dynamic: bool, asked: bool) -> None:
        self.name = name
        self.compile_graph = compile_graph
        self.dynamic = dynamic
        #: Whether the user asked for sizes that are symbolic from the first call on, and has not been told yet.
        self.asked = asked
        #: Whether all graphs so far came back unchanged; None before the first.
        self.as_they_are: bool | None = None

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Compiled:
        """What the backend makes of a graph, or `BackendError`; `Unsupported` where it is to get one of numbers."""
        sizes = gm.meta.get("sizes") if isinstance(gm, fx.GraphModule) else None
        if sizes is None:
            compiled, unchanged = self._compiled(gm, example_inputs, example_inputs)
            self.as_they_are = unchanged and self.as_they_are is not False
            return compiled
        if self.dynamic:
            symbolic = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
            compiled, _ = self._compiled(gm, symbolic, example_inputs)
            sizes.close(f"the backend {self.name!r}")
            return compiled
        if self.as_they_are is not False:
            compiled, self.as_they_are = self._compiled(gm, example_inputs, example_inputs)
            if self.as_they_are:
                return compiled
        self._tell()
        raise Unsupported("a graph for many sizes", f"the backend {self.name!r} does not say `dynamic = True`")

    def _tell(self) -> None:
        if self.asked:
            self.asked = False
            text = f"dynamic=True has no effect: the backend {self.name!r} compiles every size on its own"
            warnings.warn(f"{text}\n  hint: set `dynamic = True` on it if it takes symbolic sizes", FallbackWarning, 2)

    def _compiled(self, gm: Any, given: list[Any], example_inputs: list[Any]) -> tuple[Compiled, bool]:
        """The callable for what the backend is given, and whether it is the graph as it was."""
        before = str(gm.graph) if isinstance(gm, fx.GraphModule) else ""
        try:
            compiled = self.compile_graph(gm, given)
        except StatorError:
            raise
        except Exception as error:
            raise BackendError(self.name, f"raised {type(error).__name__}: {error}") from error
        if not callable(compiled):
            raise BackendError(self.name, f"gave {_describe(compiled)}, which is not callable")
        itself = compiled is gm or getattr(compiled, "__self__", None) is gm
        if itself or not isinstance(gm, fx.GraphModule):
            unchanged = itself and bool(before) and str(gm.graph) == before
            return atomic(gm, compiled, example_inputs), unchanged
        (results,) = gm.graph.output_node().args
        watched = Watched(self.name, compiled, len(results) if isinstance(results, (tuple, list)) else 1)
        return atomic(gm, watched, example_inputs), False


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
