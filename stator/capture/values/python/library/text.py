"""`repr`, `ascii`, `format`, and what `str` is of a value.

The text of a constant is Python's, of what the program has made that of its class; a tensor's is not known.
Neighbours: `builtin_types.py` (`str`), `opcodes/text.py` (f-strings), `unknown_text.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.capture.value import Value
from stator.capture.values.base import Builtin, PinnedValue, bind_static, call_written
from stator.capture.values.fold import ask, fold
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.mirror import answering, apply, models
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from stator.capture.machine import Machine


def text_of_constant(tx: Machine, value: Value, function: Any, name: str) -> Value:
    """The text of what is known: by a method of the user's, and with the names that a class or function has now."""
    written = call_written(tx, value, name)
    if written is not None:
        return written
    named = isinstance(value, PinnedValue) or issubclass(value.python_type(), types.FunctionType | types.MethodType)
    return (ask if named else fold)(tx, function, (value,))


def text(tx: Machine, value: Value, function: Any) -> Value:
    """`str(value)` or `repr(value)`."""
    name = "__str__" if function is str else "__repr__"
    if value.is_constant():
        return text_of_constant(tx, value, function, name)
    if isinstance(value, UserObjectValue):
        raw = look_up(tx, value.cls, name)
        if name == "__str__" and getattr(raw, "__objclass__", None) is object:
            return text(tx, value, repr)
        if raw is not MISSING and getattr(raw, "__objclass__", None) is not object:
            result = value.special(tx, name)
            if result is not None:
                whole = issubclass(result.python_type(), str)
                return result if whole else answering(tx, function, value, name, result)
        raise value.refuse(f"{function.__name__}()")
    if isinstance(value, ExceptionValue):
        if isinstance(look_up(tx, value.python_type(), name), types.FunctionType):
            return bind_static(tx, value, value.python_type(), name).call(tx, (), {})
        return value.m___str__(tx) if function is str else value.m___repr__(tx)
    if (own := value.by_builtin(tx, function)) is not None:
        return own
    if isinstance(value, Builtin):
        return apply(tx, function, (value,))
    return fresh(function(value.snapshot()))


@models(repr)
def call_repr(tx: Machine, value: Value, /) -> Value:
    """`repr(obj)`."""
    return text(tx, value, repr)


@models(ascii)
def call_ascii(tx: Machine, value: Value, /) -> Value:
    """`ascii(obj)`: its `repr` with escapes."""
    return fresh(text(tx, value, repr).constant().encode("ascii", "backslashreplace").decode())


@models(format)
def call_format(tx: Machine, value: Value, spec: Value | None = None, /) -> Value | None:
    """`format(obj, spec)`."""
    if value.is_constant() and (spec is None or spec.is_constant()):
        return None if isinstance(value, Builtin) else fold(tx, format, (value,) if spec is None else (value, spec))
    if isinstance(value, UserObjectValue):
        written = look_up(tx, value.cls, "__format__")
        if getattr(written, "__objclass__", None) is not object:
            result = value.special(tx, "__format__", fresh("") if spec is None else spec)
            if result is not None and not issubclass(result.python_type(), str):
                return answering(tx, format, value, "__format__", result)
            return result
    if spec is None or (spec.is_constant() and spec.constant() == ""):
        return text(tx, value, str)
    if isinstance(value, Builtin):
        return None
    raise value.refuse("format()")
