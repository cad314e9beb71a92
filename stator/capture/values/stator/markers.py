"""What the functions of `base/markers.py` mean in a program that is being captured.

`graph_break()` ends the graph, `is_compiling()` is true, a function made by `disable` is not looked into, one marked by
`allow_in_graph` is one call, and one marked by `assume_constant_result` is called while capturing. The markers of
torch's own compiler mean the same; they are known by name, so that it need not be imported.
Neighbours: `base/markers.py`, `function.py`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from stator.base import log, markers
from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.source import ConstSource
from stator.capture.values import watch
from stator.capture.values.fold import run
from stator.capture.values.python.constant import NONE, TRUE
from stator.capture.values.python.objects.function import FunctionValue
from stator.capture.values.registry import NAMED_CALLS, SPECIAL, handles, wrap
from stator.capture.values.torch.tensor import call_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


class AskedBreak(GraphBreak):
    """The program asks for a graph break."""


class DisabledCall(GraphBreak):
    """The program calls a function that is marked as left to Python."""


@value_class
class DisabledFunction(FunctionValue):
    """A function made by `stator.disable`."""

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


def graph_break_of_torch(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The same of torch's compiler; where a library asks, it asks that compiler alone."""
    return NONE if tx.code.co_filename.startswith(tx.session.library) else graph_break(tx, args, kwargs)


@handles(markers.is_compiling)
def is_compiling(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`stator.is_compiling()`."""
    return TRUE


@handles(markers.mark_dynamic, markers.maybe_mark_dynamic, markers.mark_static)
def mark_dynamic(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Sizes inside of the program follow from those of its inputs: there is nothing to mark."""
    log.record(log.NOTE, text="marking sizes inside of a compiled function has no effect", location=tx.location())
    return NONE


#: Functions of torch's compiler that programs call, and what they mean.
_OF_TORCH = "torch._dynamo.decorators"
NAMED_CALLS[_OF_TORCH, "graph_break"] = graph_break_of_torch
NAMED_CALLS["torch._dynamo.external_utils", "is_compiling"] = is_compiling
for _name in ("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked"):
    NAMED_CALLS[_OF_TORCH, _name] = mark_dynamic


@value_class
class AllowedFunction(FunctionValue):
    """A function that is one call of the graph, whatever it does."""

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return call_graph(tx, "call_function", self.function, args, kwargs)


@value_class
class ConstantFunction(FunctionValue):
    """A function whose result is taken for constant."""

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        assert self.function is not None
        plain = [arg.snapshot() for arg in args]
        named = {name: arg.snapshot() for name, arg in kwargs.items()}
        result = run(tx, self.function, plain, named)
        return wrap(tx, result, ConstSource(result))


def _is_allowed(obj: Any) -> bool:
    if type(obj) is not types.FunctionType:
        return False
    # torch.compiler.allow_in_graph keeps the functions in a table of a module that it has imported by then.
    rules = sys.modules.get("torch._dynamo.trace_rules")
    return markers.ALLOWED in obj.__dict__ or (rules is not None and id(obj) in rules._allowed_callable_ids)


def _build_allowed(tx: Machine, obj: types.FunctionType, source: Source) -> Value:
    watch.identity(tx, source, obj)
    return AllowedFunction(obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=source)


def _is_constant(obj: Any) -> bool:
    return type(obj) is types.FunctionType and (
        markers.CONSTANT in obj.__dict__ or obj.__dict__.get("_dynamo_marked_constant", False)
    )


def _build_constant(tx: Machine, obj: types.FunctionType, source: Source) -> Value:
    watch.identity(tx, source, obj)
    return ConstantFunction(obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=source)


def _is_disabled(obj: Any) -> bool:
    return type(obj) is types.FunctionType and markers.DISABLED in obj.__dict__


def _build_disabled(tx: Machine, obj: types.FunctionType, source: Source) -> Value:
    watch.identity(tx, source, obj)
    return DisabledFunction(obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=source)


SPECIAL += [(_is_disabled, _build_disabled), (_is_allowed, _build_allowed), (_is_constant, _build_constant)]
