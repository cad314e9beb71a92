"""What `__new__` of a builtin type gives: instances of users' classes, exceptions, tuples, numbers and texts.

The kinds of instances fill a table here: who models one says of which classes, and how it is made.
Neighbours: `klass.py` (calls of classes), `user_object.py` and `nn_module.py` (fill the table).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from stator.base.errors import GraphBreak
from stator.capture.value import Value
from stator.capture.values.fold import all_constant, fold
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.mirror import models
from stator.capture.values.python.containers.sequence import TupleValue, tuple_class
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine

#: Makes an instance of a user's class: filled by `user_object.py` (predicate on the class, maker).
INSTANCE_MAKERS: list[tuple[Callable[[type], bool], Callable[[Machine, type], Value]]] = []

#: Classes whose instances are constants: made for real when the arguments are known.
CONSTANT_CLASSES: set[type] = set()


def new_instance(tx: Machine, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What a builtin `__new__` gives for a user's class."""
    if look_up(tx, cls, "__del__") is not MISSING:
        raise GraphBreak(f"instances of {cls.__qualname__} do something when they go", "make them outside of the graph")
    if issubclass(cls, BaseException):
        return ExceptionValue(cls, list(args))
    if issubclass(cls, tuple):
        return new_tuple(tx, cls, args)
    if issubclass(cls, IMMUTABLE_BASES) and not has_operators(cls) and all_constant(args, kwargs):
        return fold(tx, cls.__new__, (fresh(cls), *args), kwargs)
    for applies, maker in INSTANCE_MAKERS:
        if applies(cls):
            return maker(tx, cls)
    raise GraphBreak(f"making an instance of {cls.__module__}.{cls.__qualname__} is not supported")


#: Builtin classes whose instances are their value.
IMMUTABLE_BASES = (int, float, complex, str, bytes)


def has_operators(cls: type) -> bool:
    """Whether a class statement gives instances special methods, which operators would run."""
    written = (item for parent in cls.__mro__ for item in parent.__dict__.items())
    return any(name.startswith("__") and isinstance(raw, types.FunctionType) for name, raw in written)


@models(tuple.__new__)
def call_tuple_new(tx: Machine, cls: Value, items: Value | None = None, /) -> Value | None:
    """What the `__new__` of a named tuple comes down to."""
    if not issubclass(cls.python_type(), type):
        return None
    return new_tuple(tx, cls.constant(), () if items is None else (items,))


def new_tuple(tx: Machine, cls: type, args: Sequence[Value]) -> Value:
    """`tuple.__new__(cls, *args)`."""
    tuple_class(tx, cls)
    return TupleValue(args[0].unpack(tx) if args else [], cls)
