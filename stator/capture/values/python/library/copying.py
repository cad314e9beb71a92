"""`copy.copy` and `copy.deepcopy` of values, by structure.

Constants, functions and classes are their own copies. An object whose class has its own way of being
copied or pickled is refused. Neighbours: `user_object.py`, `mapping.py`, `sequence.py`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.mirror import same_values
from stator.capture.values.python.constant import SliceValue
from stator.capture.values.python.containers.deques import DequeValue
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.mapping import DictValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.objects.function import BoundMethodValue, FunctionValue
from stator.capture.values.python.objects.partial import PartialValue
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.registry import handles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Methods by which a class takes its copying into its own hands.
HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def is_plain(tx: Machine, cls: type, hook: str) -> bool:
    """Whether instances of a class are copied attribute by attribute."""
    if look_up(tx, cls, hook) is not MISSING:
        return False
    return all(
        raw is MISSING or getattr(raw, "__objclass__", None) is object
        for raw in (look_up(tx, cls, name) for name in HOOKS)
    )


class Copier:
    """One call of `copy` or `deepcopy`."""

    __slots__ = ("deep", "memo", "tx")

    def __init__(self, tx: Machine, deep: bool) -> None:
        self.tx = tx
        self.deep = deep
        self.memo: dict[Value, Value] = {}

    def inner(self, value: Value) -> Value:
        """A part of what is copied."""
        return self.copy(value) if self.deep else value

    def copy(self, value: Value) -> Value:
        """The copy."""
        if isinstance(value, SliceValue | SetValue) and self.deep:
            return self.memo.get(value) or self._copy(value)
        if value.is_constant() or isinstance(value, FunctionValue | PartialValue | BoundMethodValue):
            return value
        made = self.memo.get(value)
        if made is None:
            made = self._copy(value)
        return made

    def _copy(self, value: Value) -> Value:
        tx = self.tx
        match value:
            case TupleValue():
                items = [self.inner(item) for item in value.items]
                return value if same_values(items, value.items) else TupleValue(items, value.cls)
            case SliceValue():
                start, stop, step = map(self.inner, value.parts)
                return SliceValue((start, stop, step)) if self.deep else value
            case ListValue():
                made: Value = DequeValue([], limit=value.limit) if isinstance(value, DequeValue) else ListValue([])
                self.memo[value] = made
                made.items.extend(self.inner(item) for item in value.values(tx))  # type: ignore[attr-defined]
                return made
            case SetValue() if value.cls is set or self.deep:
                return SetValue.of(tx, [self.inner(item) for item in value.items.values()], value.cls)
            case SetValue():
                return value
            case DictValue():
                return self.dict(value)
            case UserObjectValue() if value.copied_by_parts:
                return self.object(value)
        raise value.refuse("copying")

    def dict(self, value: DictValue) -> DictValue:
        """The copy of a dict."""
        made = DictValue((), value.cls, factory=value.factory)
        self.memo[value] = made
        for key, item in value.pairs(self.tx):
            made.put(self.tx, self.inner(key), self.inner(item))
        return made

    def object(self, value: UserObjectValue) -> Value:
        """The copy of an instance of a user's class."""
        if not is_plain(self.tx, value.cls, "__deepcopy__" if self.deep else "__copy__"):
            raise value.refuse("copying")
        made = UserObjectValue(value.cls)
        self.memo[value] = made
        if value.storage is not None:
            made.storage = self.copy(value.storage)
        if value.slots or any(parent.__dict__.get("__slots__") for parent in value.cls.__mro__[:-1]):
            raise value.refuse("copying slots")
        for key, item in value.namespace.pairs(self.tx):
            made.namespace.put(self.tx, key, self.inner(item))
        return made


def _handler(deep: bool) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return Copier(tx, deep).copy(args[0] if args else kwargs["x"])

    return call


handles(copy.copy)(_handler(deep=False))
handles(copy.deepcopy)(_handler(deep=True))
