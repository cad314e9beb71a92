"""Guards on what is one object and what is two, asked for once the frame has been run.

Two ways that led to two objects while capturing may lead to one in a later call. That matters only for what the program
changes: a tensor in place, a container, an object, a closure cell. Everything else that depends on identity is guarded
where it is asked (`operators.identical`), and two ways to one object where they meet (`watch.again`).
Neighbours: `frames.py` (calls this), `effects.py` (what has changed), `graph.py` (the tensors).
"""

from __future__ import annotations

from collections import Counter
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.guards import Guard
from stator.capture.source import ConstSource, InstanceDictSource, LocalSource, StorageSource
from stator.capture.values.function import CellValue, FunctionValue
from stator.capture.values.module import ModuleValue, RegistryValue

if TYPE_CHECKING:
    from types import CodeType

    from stator.capture.graph import GraphBuilder
    from stator.capture.guards import GuardSet
    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


class SharedMemory(GraphBreak):
    """A tensor that is changed in place shares memory with another one."""


def guard_aliasing(machine: Machine, guards: GuardSet) -> None:
    """Adds the guards that what the program changes needs."""
    guard_memory(machine.graph, guards)
    changed = list(machine.effects.changed)
    if not changed:
        return
    known = {value.source: value for value in list(machine.values.values()) if value.source is not None}
    for value in changed:
        if isinstance(value, CellValue):
            pin_functions(machine, known)
        elif value.source is not None and value.source is not LocalSource(keywords_name(machine.code)):
            guard_object(value.source, value, known, guards)


# -- tensors -------------------------------------------------------------------------------------------


def guard_memory(graph: GraphBuilder, guards: GuardSet) -> None:
    """A graph that changes tensors in place is only right while they share no memory with others that it takes."""
    leaves = graph.leaves()
    changed = [leaf for leaf in leaves if leaf.changed]
    if not changed or len(leaves) == 1:
        return
    storages = {leaf.source: leaf.example.untyped_storage()._cdata for leaf in leaves}
    owners = Counter(storages.values())
    for leaf in changed:
        if owners[storages[leaf.source]] > 1:
            text = f"{leaf.source} is changed in place and shares memory with another tensor that is used"
            raise SharedMemory(text, "pass a clone, or make the function return the new value")
    alone = tuple(leaf.source for leaf in leaves if owners[storages[leaf.source]] == 1)
    if len(alone) > 1:
        guards.add(Guard("NOT_ALIASED", None, alone))
    for leaf in leaves:
        if owners[storages[leaf.source]] > 1:
            for other in changed:
                guards.add(Guard("NOT_ALIASED", None, (leaf.source, other.source)))


def keywords_name(code: CodeType) -> str:
    """The name of `**kwargs`, a dict that each call makes anew; empty without one."""
    plain = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    return code.co_varnames[plain] if code.co_flags & CO_VARKEYWORDS else ""


# -- Python objects ------------------------------------------------------------------------------------


def guard_object(source: Source, value: Value, known: dict[Source, Value], guards: GuardSet) -> None:
    """An object that the program changes is none of the others of its type that it has met."""
    place: Source = source.base if isinstance(source, InstanceDictSource | StorageSource) else source  # type: ignore[assignment]
    owner = known.get(place, value)
    kind = owner.python_type()
    for other_source, other in known.items():
        if other is owner or other_source is place or (is_pinned(owner) and is_pinned(other)):
            continue
        if other.python_type() is kind and not isinstance(other, RegistryValue):
            guards.add(Guard("NOT_SAME", place, other_source))
    if not isinstance(source, InstanceDictSource):
        return
    for other_source, other in known.items():  # the object's dict may be passed on its own, too
        apart = isinstance(other, RegistryValue) or isinstance(other_source, InstanceDictSource | ConstSource)
        if other.python_type() is dict and not apart:
            guards.add(Guard("NOT_SAME", source, other_source))


def is_pinned(value: Value) -> bool:
    """Whether a value is guarded by identity already."""
    return value.is_constant() or isinstance(value, ModuleValue)


def pin_functions(machine: Machine, known: dict[Any, Value]) -> None:
    """A function that may be exchanged for one with the same code could bring a cell that has changed."""
    for value in known.values():
        if isinstance(value, FunctionValue):
            value.pin(machine)
