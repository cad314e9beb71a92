"""Warnings that a program gives, and the filters that it puts around them.

All of it is replayed, in the program's order, when the compiled code runs, so that Python's own filters decide.
Neighbours: `effects.py` (the order), `pure.py` (log messages).
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.fold import all_constant
from stator.capture.values.python.constant import NONE
from stator.capture.values.registry import CALLS, builds, handles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value


@handles(warnings.warn)
def call_warn(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A warning with a known text is given again by every compiled call, under Python's own filters."""
    plain = {name: value for name, value in kwargs.items() if name in ("category", "message")}
    if not all_constant(args, plain):
        raise GraphBreak("a warning whose text is not known at capture is not supported")
    message = args[0] if args else kwargs["message"]
    category = args[1] if len(args) > 1 else kwargs.get("category", NONE)
    tx.effects.call(warnings.warn, message, category)
    return NONE


def _with_options(function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]) -> Callable[..., Any]:
    """A call with known arguments; filters that raise would have to be in force while capturing."""
    if not all_constant(args, kwargs):
        raise GraphBreak("filters of warnings that are not known at capture are not supported")
    plain = [value.constant() for value in args]
    named = {name: value.constant() for name, value in kwargs.items()}
    if "error" in (*plain, *named.values()) or named.get("record"):
        raise GraphBreak("warnings that are raised or recorded are not captured")
    return functools.partial(function, *plain, **named)


def _filter(function: Callable[..., Any]) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.effects.call(_with_options(function, args, kwargs))
        return NONE

    return call


for _function in (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings):
    CALLS[_function] = _filter(_function)


@value_class
class CatchWarningsValue(Object):
    """A `warnings.catch_warnings()`."""

    kind = "a context of warnings"

    make: Callable[..., Any] = warnings.catch_warnings

    def python_type(self) -> type:
        return warnings.catch_warnings

    def truth(self, tx: Machine) -> bool:
        return True

    def m___enter__(self, tx: Machine, /) -> Value:
        tx.effects.call(warnings.catch_warnings.__enter__, self)
        return NONE

    def m___exit__(self, tx: Machine, /, *exception: Value) -> Value:
        tx.effects.call(warnings.catch_warnings.__exit__, self)
        return NONE

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.make)


def _method(name: str) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context, *rest = args
        if not isinstance(context, CatchWarningsValue):
            raise context.refuse(name)
        return getattr(context, f"m_{name}")(tx, *rest)

    return call


for _name in ("__enter__", "__exit__"):
    CALLS[getattr(warnings.catch_warnings, _name)] = _method(_name)


@handles(warnings.catch_warnings)
def call_catch_warnings(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`warnings.catch_warnings(…)`."""
    return CatchWarningsValue(_with_options(warnings.catch_warnings, args, kwargs))


@builds(warnings.catch_warnings, exact=True)
def build_catch_warnings(tx: Machine, obj: Any, source: Source) -> Value:
    """One that was made, and perhaps entered, before."""
    watch.type_of(tx, source, type(obj))
    if obj._record:
        raise GraphBreak("warnings that are recorded are not captured")
    return CatchWarningsValue(source=source)
