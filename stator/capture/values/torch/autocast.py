"""`torch.autocast` inside of the program.

Entering and leaving are calls in the graph; in between, the graph builder runs fakes under the same
mode, so that dtypes come out as autocast makes them.
Neighbours: `graph_context.py` (contexts in a graph), `graph.py` (`autocasts`), `state.py` (questions about the
mode).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch
from torch.amp import autocast_mode

from stator.capture.fields import value_class
from stator.capture.source import ConstSource
from stator.capture.values.fold import ask
from stator.capture.values.registry import fresh, handles, wrap
from stator.capture.values.torch.graph_context import GraphContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


@value_class
class AutocastValue(GraphContext):
    """An autocast context."""

    kind = "an autocast context"

    #: Device type, dtype, enabled, whether casts are cached.
    arguments: tuple[Any, ...]
    nodes: list[fx.Node] = field(init=False, default_factory=list)

    def python_type(self) -> type:
        return torch.autocast

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator."""
        return wrap(tx, autocast_mode.autocast_decorator, ConstSource(autocast_mode.autocast_decorator)).call(
            tx, (self, *args), kwargs
        )

    def enter(self, tx: Machine) -> Value:
        self.nodes.append(tx.graph.record(autocast_mode._enter_autocast, self.arguments, tx.location()))
        tx.graph.autocasts.append(self.arguments)
        return self

    def leave(self, tx: Machine) -> None:
        tx.graph.record(autocast_mode._exit_autocast, (self.nodes.pop(),), tx.location())
        tx.graph.autocasts.pop()

    def reconstruct(self, out: Assembler) -> None:
        out.call(torch.autocast, *(fresh(argument) for argument in self.arguments))


@handles(torch.autocast)
def call_autocast(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.autocast(device_type, dtype, enabled, cache_enabled)`."""
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    device, dtype, enabled, cache = (given[name].constant() if name in given else None for name in names)
    if dtype is None and isinstance(device, str):
        dtype = ask(tx, torch.get_autocast_dtype, (fresh(device),)).constant()
    return AutocastValue((device, dtype, True if enabled is None else bool(enabled), cache))
