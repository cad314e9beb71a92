"""What the functions of `base/markers.py` mean in a program that is being captured.

`graph_break()` ends the graph, `is_compiling()` is true, and a function made by `disable` is not looked into.
Neighbours: `base/markers.py`, `function.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.base import log, markers
from stator.base.errors import GraphBreak
from stator.capture.values import watch
from stator.capture.values.constant import NONE, TRUE
from stator.capture.values.function import FunctionValue
from stator.capture.values.registry import SPECIAL, handles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


class AskedBreak(GraphBreak):
    """The program asks for a graph break."""


class DisabledCall(GraphBreak):
    """The program calls a function that is marked as left to Python."""


class DisabledFunction(FunctionValue):
    """A function made by `stator.disable`."""

    __slots__ = ()

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        reason = getattr(self.function, markers.DISABLED)
        raise DisabledCall(
            f"{self.qualname} is called, which is not compiled: {reason}", "call it outside of the compiled function"
        )


@handles(markers.graph_break)
def graph_break(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`stator.graph_break(reason)`."""
    given = [value.constant() for value in (*args, *kwargs.values()) if value.is_constant()]
    reason = next((text for text in given if text), "")
    raise AskedBreak(
        f"the program asks for a graph break{f': {reason}' if reason else ''}", "remove graph_break() to capture on"
    )


@handles(markers.is_compiling)
def is_compiling(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`stator.is_compiling()`."""
    return TRUE


@handles(markers.mark_dynamic)
def mark_dynamic(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Sizes inside of the program follow from those of its inputs: there is nothing to mark."""
    log.record(log.NOTE, text="mark_dynamic() inside of a compiled function has no effect", location=tx.location())
    return NONE


def _is_disabled(obj: Any) -> bool:
    return type(obj) is types.FunctionType and markers.DISABLED in obj.__dict__


def _build_disabled(tx: Machine, obj: types.FunctionType, source: Source) -> Value:
    watch.identity(tx, source, obj)
    return DisabledFunction(obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=source)


SPECIAL.append((_is_disabled, _build_disabled))
