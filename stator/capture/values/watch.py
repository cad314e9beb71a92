"""The guards that facts about real objects need, one function a fact.

Invariant: every fact that a value class uses about an object with a source goes through here, so this
file is the list of what capture assumes. A missing source means that the object was made by the frame
(or is pinned by identity) and needs no guard. Neighbours: `guards.py` (the kinds).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.conditions import Operand
from stator.capture.source import ClassAttrSource, ConstSource, InstanceDictSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.guard_kinds import TensorFacts
    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


#: Flag of classes whose attributes cannot be assigned.
IMMUTABLE = 1 << 8


def equals(tx: Machine, source: Source | None, obj: Any) -> None:
    """The object is this literal (type and value)."""
    if source is not None and type(source) is not ConstSource:
        tx.guard("EQUALS", source, obj)


def identity(tx: Machine, source: Source | None, obj: Any) -> None:
    """The object is this very one."""
    if source is not None and type(source) is not ConstSource:
        tx.guard("ID", source, obj)


def type_of(tx: Machine, source: Source | None, cls: type) -> None:
    """The object's exact type."""
    if source is not None and type(source) is not ConstSource:
        tx.guard("TYPE", source, cls)


def code(tx: Machine, source: Source | None, function: types.FunctionType) -> None:
    """The code of a function, which can be exchanged."""
    if source is not None:
        tx.guard("CODE", source, function.__code__)


def length(tx: Machine, source: Source | None, count: int) -> None:
    """`len()` of a list, tuple, set or deque."""
    if source is not None:
        tx.guard("LENGTH", source, count)


def keys(tx: Machine, source: Source | None, names: tuple[Any, ...]) -> None:
    """The keys of a dict, in order."""
    if source is not None:
        tx.guard("KEYS", source, names)


def members(tx: Machine, source: Source | None, items: set[Any] | frozenset[Any]) -> None:
    """The items of a set, in its order."""
    if source is None:
        return
    if type(items) in (set, frozenset):
        tx.guard("MEMBERS", source, items)
    else:
        tx.guard("CALL", source, (members_now, members_now(items)))


def members_now(items: Any) -> list[Any]:
    """The items of an instance of a subclass of set, whatever that overrides."""
    return list(set.__iter__(items))


def present(tx: Machine, source: Source | None, key: Any) -> None:
    """The dict has this key."""
    if source is not None:
        tx.guard("PRESENT", source, key)


def absent(tx: Machine, source: Source | None, key: Any) -> None:
    """The dict has no such key."""
    if source is not None:
        tx.guard("ABSENT", source, key)


def class_attribute(tx: Machine, cls: type, name: str, raw: Any, found: bool) -> None:
    """What a class and its bases have under a name, or that they have nothing."""
    if cls.__flags__ & IMMUTABLE:
        return
    if found:
        tx.guard("ID", ClassAttrSource(ConstSource(cls), name), raw)
    else:
        tx.guard("LACKS", ConstSource(cls), name)


def bases(tx: Machine, cls: type) -> None:
    """The class and its bases, in the order in which names are looked up."""
    if not cls.__flags__ & IMMUTABLE:
        tx.guard("MRO", ConstSource(cls), cls.__mro__)


def passed_by_super(tx: Machine, cls: type, name: str, passed: Sequence[type]) -> None:
    """The classes along which `super()` goes, and that those which it passes lack the name themselves."""
    bases(tx, cls)
    for parent in passed:
        if not parent.__flags__ & IMMUTABLE:
            tx.guard("ABSENT", InstanceDictSource(ConstSource(parent)), name)


def no_instance_attribute(tx: Machine, source: Source | None, name: str) -> None:
    """The instance's own dict does not shadow what would be found elsewhere."""
    if source is not None:
        tx.guard("ABSENT", InstanceDictSource(source), name)


def empty(tx: Machine, source: Source | None, names: tuple[str, ...]) -> None:
    """These dicts of a module are empty."""
    if source is not None:
        tx.guard("EMPTY", InstanceDictSource(source), names)


def tensor(tx: Machine, source: Source | None, facts: TensorFacts) -> None:
    """Type, dtype, device, sizes and strides (but symbolic ones), requires_grad and dispatch keys of a tensor."""
    if source is not None:
        tx.guard("TENSOR", source, facts)


def offset(tx: Machine, source: Source, example: torch.Tensor) -> None:
    """Where a tensor begins in its storage."""
    program = ("operand", 0), ("const", example.storage_offset()), ("==",)
    tx.guard("CONDITION", None, ((Operand(source, "offset"),), program))


def again(tx: Machine, source: Source, met: Value, obj: Any) -> None:
    """An object met before is reached by a second path."""
    if met.source is None or met.source is source:
        return
    if met.is_pinned():
        identity(tx, source, obj)
    else:
        tx.guard("SAME", source, met.source)


def parameter(tx: Machine, source: Source | None, obj: torch.Tensor) -> None:
    """A live parameter or buffer that the graph holds: the very object, with its metadata."""
    if source is not None:
        tx.guard("ID", source, obj)
        tx.guard("TENSOR", source, obj)
