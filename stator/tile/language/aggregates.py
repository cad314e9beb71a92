"""Classes of a program whose instances kernels carry: fields with types, and methods that are jit functions.

`@aggregate` makes a class a value of the language. Its `__init__` is plain Python that sets every field that the class
annotates; an instance is never changed afterwards. The type of an instance is its class and the types of its fields.
Neighbours: `static.py` has the protocol; the front end calls classes and bound methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.static import base_type, base_value, constexpr
from stator.tile.language.values import type_of


class jit_callable:
    """A function of the program that is compiled where it is called; `stator.tile.jit` has the class."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be called")


class bound_method:
    """A jit function of an aggregate's class, and the instance that it was asked of."""

    def __init__(self, function: jit_callable, instance: Any) -> None:
        self.function, self.instance = function, instance

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(self.instance, *args, **named)


class _method:
    """Gives bound methods of a jit function."""

    def __init__(self, function: jit_callable) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.function if instance is None else bound_method(self.function, instance)


class aggregate_type(base_type):
    """The class of an aggregate, and the types of its fields in order."""

    def __init__(self, base: type[aggregate_value], fields: tuple[tuple[str, Any], ...]) -> None:
        self.base, self.fields = base, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, aggregate_type) and (self.base, self.fields) == (other.base, other.fields)

    def __hash__(self) -> int:
        return hash((self.base, tuple([name for name, _ in self.fields])))

    def __str__(self) -> str:
        return f"{self.base.__name__}({', '.join(f'{name}: {type}' for name, type in self.fields)})"

    __repr__ = __str__

    def handle_types(self) -> list[Any]:
        return [each for _, type in self.fields for each in type.handle_types()]

    def assemble(self, handles: Iterator[Any]) -> aggregate_value:
        instance = object.__new__(self.base)
        for name, type in self.fields:
            object.__setattr__(instance, name, type.assemble(handles))
        return instance

    def mangle(self) -> str:
        return f"{self.base.__name__}_{'_'.join(type.mangle() for _, type in self.fields)}_"


class aggregate_value(base_value):
    """Base of the classes that `aggregate` makes."""

    _fields: tuple[str, ...] = ()
    _complete = False

    @property
    def type(self) -> aggregate_type:
        fields = [(name, type_of(getattr(self, name))) for name in type(self)._fields]
        return aggregate_type(type(self), tuple(fields))

    def handles(self) -> list[Any]:
        values = [getattr(self, name) for name in type(self)._fields]
        return [handle for value in values if isinstance(value, base_value) for handle in value.handles()]

    def __setattr__(self, name: str, value: Any) -> None:
        if self._complete:
            raise InvalidUse(f"{type(self).__name__} is not changed once it is made", "make another one")
        if name not in type(self)._fields:
            raise InvalidUse(f"{type(self).__name__} has no field {name!r}", "annotate it in the class")
        known = isinstance(value, base_value)
        object.__setattr__(self, name, value if known else constexpr(value))


def aggregate(cls: type) -> type:
    """Makes a class of the program a value of the language."""
    fields = tuple(inspect.get_annotations(cls))
    if "__init__" not in cls.__dict__:
        raise InvalidUse(f"{cls.__name__} has no __init__ that sets its fields")
    members = {name: item for name, item in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    for name, item in members.items():
        if isinstance(item, jit_callable):
            members[name] = _method(item)

    set_fields = cls.__dict__["__init__"]

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        set_fields(self, *args, **named)
        missing = [name for name in fields if name not in self.__dict__]
        if missing:
            raise InvalidUse(f"{cls.__name__}.__init__ does not set {', '.join(missing)}")
        object.__setattr__(self, "_complete", True)

    made = {**members, "__init__": __init__, "_fields": fields}
    return type(cls.__name__, (aggregate_value,), made)
