"""From Python objects to values: the tables, filled by the value files.

`wrap` makes the value of an object that existed before the frame ran and emits the guards that its
use needs; `fresh` makes the value of an object computed during capture. Both go by the object's exact
type first, then by its bases.
Invariant: one object has one value in one conversion (`tx.values`, by id), so aliasing holds; objects
met are kept until the conversion ends, so no id is used twice.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.values import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value

    Builder = Callable[[Machine, Any, Source], Value]
    Maker = Callable[[Any], Value]
    Handler = Callable[[Machine, Sequence[Value], dict[str, Value]], Value]

#: Types that are compared by value and have no identity that a program could rely on.
LITERALS: frozenset[type] = frozenset(
    {
        int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented),
        torch.dtype, torch.device, torch.layout, torch.memory_format,
    }
)  # fmt: skip

#: Of these those of which there is one object for each value, as far as a program can tell.
SINGLE: frozenset[type] = frozenset(
    {bool, type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format}
)

#: type -> builder of the value of an object with a source. Looked up along the MRO.
BUILDERS: dict[type, Builder] = {}

#: Types whose builder is only for exact instances: subclasses are users' objects.
EXACT: set[type] = set()

#: type -> maker of the value of a new object. Exact types, then the MRO.
MAKERS: dict[type, Maker] = {}

#: Asked in order before `BUILDERS`: (predicate on the object, builder).
SPECIAL: list[tuple[Callable[[Any], bool], Builder]] = []

#: A callable (by identity) -> what calling it does at capture, instead of inlining or running it.
CALLS: dict[Any, Handler] = {}

#: The code of a function -> what calling a function with this code does: for wrappers that a decorator makes.
CODES: dict[CodeType, Callable[[Machine, Any, Sequence[Value], dict[str, Value]], Value]] = {}


#: The same by module and name, for functions of modules that we do not import.
NAMED_CALLS: dict[tuple[str, str], Handler] = {}


def builds(*types: type, exact: bool = False) -> Callable[[Builder], Builder]:
    """Registers the builder of values for objects of these types (and of their subclasses unless `exact`)."""

    def register(builder: Builder) -> Builder:
        for cls in types:
            BUILDERS[cls] = builder
            if exact:
                EXACT.add(cls)
        return builder

    return register


def makes(*types: type) -> Callable[[Maker], Maker]:
    """Registers the maker of values for new objects of these types."""

    def register(maker: Maker) -> Maker:
        for cls in types:
            MAKERS[cls] = maker
        return maker

    return register


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Registers what calling these functions does at capture."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            CALLS[function] = handler
        return handler

    return register


def handler_of(function: Any) -> Handler | None:
    """The registered handler of a callable; unhashable ones have none."""
    try:
        found = CALLS.get(function)
    except TypeError:
        return None
    if found is None and NAMED_CALLS and type(function) is FunctionType:
        return NAMED_CALLS.get((function.__module__, function.__qualname__))
    return found


def wrap(tx: Machine, obj: Any, source: Source) -> Value:
    """The value of an object that existed before the frame; guards what makes it so."""
    kind = type(obj)
    if kind in LITERALS:
        return BUILDERS[kind](tx, obj, source)
    met = tx.values.get(id(obj))
    if met is not None:
        watch.again(tx, source, met, obj)
        return met
    value = build(tx, obj, source)
    if value.source is not None:
        tx.values[id(obj)] = value
        tx.graph.kept.append(obj)
    return value


def build(tx: Machine, obj: Any, source: Source) -> Value:
    """`wrap` without the identity memo."""
    for applies, builder in SPECIAL:
        if applies(obj):
            return builder(tx, obj, source)
    found = BUILDERS.get(type(obj))
    if found is not None:
        return found(tx, obj, source)
    for cls in type(obj).__mro__[1:]:
        found = BUILDERS.get(cls)
        if found is not None and cls not in EXACT:
            return found(tx, obj, source)
    raise AssertionError("object has a builder")


def fresh(obj: Any) -> Value:
    """The value of an object made at capture (the result of folding)."""
    kind = type(obj)
    maker = MAKERS.get(kind)
    if maker is not None:
        return maker(obj)
    for cls in kind.__mro__:
        maker = MAKERS.get(cls)
        if maker is not None:
            return maker(obj)
    raise AssertionError("object has a maker")
