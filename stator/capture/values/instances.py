"""What compiled code runs to rebuild instances of users' classes, past everything that the classes override.

Neighbours: `user_object.py` (emits the calls).
"""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

#: Flag of classes that a class statement has made (CPython's Include/object.h).
HEAP_TYPE = 1 << 9


def new_object(cls: type) -> Any:
    """An instance without its `__init__`."""
    base: Any = next(base for base in cls.__mro__ if isinstance(vars(base).get("__new__"), types.BuiltinFunctionType))
    return base.__new__(cls)


def fill_contents(obj: Any, contents: Any) -> None:
    """Gives an instance of a builtin container's subclass its contents, by the builtin's own methods."""
    if isinstance(obj, dict):
        kind = OrderedDict if isinstance(obj, OrderedDict) else dict
        for key, value in contents.items():
            kind.__setitem__(obj, key, value)
        if isinstance(obj, defaultdict):
            obj.default_factory = contents.default_factory
    elif isinstance(obj, list):
        list.extend(obj, contents)
    elif isinstance(obj, set):
        set.update(obj, contents)
    else:
        deque.__init__(obj, contents, contents.maxlen)


def empty_slot(obj: Any, name: str) -> None:
    """Deletes a slot; it may never have been filled outside: filled and emptied by the frame."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(obj, name)


def fill_attributes(obj: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """Sets attributes without running the class's hooks."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(obj, name, value)
