"""How a value class says what it is made of: its fields, once.

    @value_class
    class PairValue(Object):
        first: Value = part()
        name: str
        seen: list[Value] = part(init=False, default_factory=list)

A dataclass of the standard library makes slots and constructor of that; `Value.children` gives what the fields marked
as parts hold, and `Value.__repr__` shows them all. `source` is every value's, and is given by name.
Invariant: no value has a `__dict__`, so that a misspelt field is an error. This is a decorator since a metaclass would
make every `isinstance` slow. Neighbour: `value.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import field
from types import FunctionType
from typing import Any, TypeVar, dataclass_transform

#: Marks, in the metadata of a field, that `Value.children` follows it.
PART = "part"

T = TypeVar("T")


def part(**arguments: Any) -> Any:
    """A field that holds a value, values in a sequence, or values under keys; None where there is none."""
    return field(metadata={PART: True}, **arguments)


@dataclass_transform(eq_default=False, field_specifiers=(field, part))
def value_class(cls: type[T]) -> type[T]:
    """Makes slots, constructor and the list of parts of a class from its fields."""
    made: Any = dataclasses.dataclass(eq=False, repr=False, match_args=False, slots=True, weakref_slot=True)(cls)
    made.PARTS = tuple(entry.name for entry in dataclasses.fields(made) if PART in entry.metadata)
    _rebind_super(cls, made)
    return made


def _rebind_super(cls: type, made: type) -> None:
    """A class with slots is another object than the one its methods were compiled in, which `super()` asks for."""
    for function in _functions(vars(made)):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name == "__class__" and cell.cell_contents is cls:
                cell.cell_contents = made
                return  # the methods share it


def _functions(namespace: Any) -> Iterator[FunctionType]:
    """The functions of a class, those behind its descriptors too."""
    for member in namespace.values():
        for found in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
            if isinstance(found, FunctionType):
                yield found
