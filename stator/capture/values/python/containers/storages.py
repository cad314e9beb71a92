"""The builtin containers that instances of subclasses of dict, list, set and deque are.

Invariant: what they hold is read, guarded and rebuilt by the builtin's own methods, whatever the subclass
overrides; the overrides are the user's code, which `user_object.py` runs. `StorageSource` is the way to them.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.source import StorageSource, contents
from stator.capture.values.lookup import look_up
from stator.capture.values.python.containers.deques import DequeValue
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.mapping import DictValue, factory_of
from stator.capture.values.python.containers.sets import SetValue, members_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


def stored_dict(obj: Any, kind: type, source: Source, factory: Value | None = None) -> DictValue:
    """A dict, ordered or not."""
    return DictValue(None, kind, source=StorageSource(source, kind), real=contents(obj, kind), factory=factory)


def stored_list(obj: Any, source: Source) -> ListValue:
    """A list."""
    return ListValue(None, source=StorageSource(source, list), real=contents(obj, list))


def stored_deque(tx: Machine, obj: Any, source: Source) -> DequeValue:
    """A deque: guards cannot get at it past the methods of its class."""
    if any(look_up(tx, type(obj), name) is not getattr(deque, name) for name in ("__len__", "__getitem__")):
        raise GraphBreak("a subclass of deque with a length or items of its own is not modelled")
    return DequeValue(None, source=source, real=obj, limit=obj.maxlen)


#: Builtin base -> a new empty storage, and the storage of a real object.
STORAGES: dict[type, tuple[Callable[[], Value], Callable[[Machine, Any, Source], Value]]] = {
    OrderedDict: (lambda: DictValue((), OrderedDict), lambda _, obj, at: stored_dict(obj, OrderedDict, at)),
    defaultdict: (
        lambda: DictValue((), defaultdict),
        lambda tx, obj, at: stored_dict(obj, defaultdict, at, factory_of(tx, obj, at)),
    ),
    dict: (lambda: DictValue(), lambda _, obj, at: stored_dict(obj, dict, at)),
    list: (lambda: ListValue([]), lambda _, obj, at: stored_list(obj, at)),
    set: (lambda: SetValue({}), members_of),
    deque: (lambda: DequeValue([]), stored_deque),
}


def storage_base(cls: type) -> type | None:
    """The builtin container that a class extends."""
    for parent in cls.__mro__:
        if parent in STORAGES:
            return parent
    return None
