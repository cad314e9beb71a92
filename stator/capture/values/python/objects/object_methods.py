"""What `object`'s own methods do on an instance of a user's class.

Neighbours: `user_object.py` (the instances, which do the work).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.capture.values import watch
from stator.capture.values.methods import attribute_name
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE, boolean
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from stator.capture.machine import Machine
    from stator.capture.value import Value
    from stator.capture.values.python.objects.user_object import UserObjectValue


def _nothing(value: UserObjectValue, tx: Machine, /, *args: Value, **kwargs: Value) -> Value:
    return NONE


def _get(value: UserObjectValue, tx: Machine, name: Value, /) -> Value:
    attribute = attribute_name(tx, name)
    found = value.find_attr(tx, attribute)
    if found is None:
        tx.raise_exception(AttributeError, f"{value.cls.__name__!r} object has no attribute {attribute!r}")
    return found


def _set(value: UserObjectValue, tx: Machine, name: Value, item: Value, /) -> Value:
    value.generic_set_attr(tx, attribute_name(tx, name), item)
    return NONE


def _delete(value: UserObjectValue, tx: Machine, name: Value, /) -> Value:
    value.generic_del_attr(tx, attribute_name(tx, name))
    return NONE


def _equal(value: UserObjectValue, tx: Machine, other: Value, /) -> Value:
    return boolean(True) if operators.identical(tx, value, other) else fresh(NotImplemented)


def _hash(value: UserObjectValue, tx: Machine, /) -> Value:
    if value.real is None:
        raise value.refuse("hash()")
    watch.identity(tx, value.source, value.real)
    return fresh(object.__hash__(value.real))


#: Method of `object` -> what it does.
OBJECT_METHODS: dict[str, Callable[..., Value]] = {
    "__init__": _nothing,
    "__init_subclass__": _nothing,
    "__getattribute__": _get,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__eq__": _equal,
    "__hash__": _hash,
}
