"""Sets and frozensets, with items named as dict keys are.

A real set cannot be indexed, so its items are constants or objects by identity, and the guard is on all of
them, in the order in which the set gives them. Neighbours: `mapping.py` (key naming), `sequence.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.source import ConstSource
from stator.capture.values import operators, watch
from stator.capture.values.base import Object, look_up
from stator.capture.values.constant import NONE, boolean
from stator.capture.values.iterators import ItemsIterator
from stator.capture.values.registry import builds, fresh, makes, wrap
from stator.capture.values.sequence import TupleValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value

#: The operators that combine two sets.
_COMBINE = frozenset("|&-^")

#: Where the methods are that `dataclasses` writes: they only compute.
GENERATED = "<string>"

#: Ways of hashing that go by identity alone.
BY_IDENTITY: tuple[Any, ...] = (
    object.__hash__,
    torch.Tensor.__hash__,
    types.FunctionType.__hash__,
    types.BuiltinFunctionType.__hash__,
)


def hash_key(tx: Machine, key: Value, kept: bool = False) -> Any:
    """What stands for a key in dicts and sets of the capture; one that a real dict has `kept` is not hashed again."""
    key.pin(tx)
    if key.is_constant():
        operators.pin_nan(tx, key)
        plain = key.constant()
        try:
            hash(plain)
        except TypeError:
            tx.raise_roughly(TypeError, f"unhashable type: {type(plain).__name__!r}")
        return plain
    if isinstance(key, TupleValue):
        return tuple(hash_key(tx, item) for item in key.items)
    method = look_up(tx, key.python_type(), "__hash__")
    if method is None:
        tx.raise_roughly(TypeError, f"unhashable type: {key.python_type().__name__!r}")
    if method not in BY_IDENTITY:
        if kept and getattr(getattr(method, "__code__", None), "co_filename", "") != GENERATED:
            raise key.refuse("a key in a dict from outside (its class defines __hash__)")
        return HashedKey(tx, key)
    return IdentityKey(tx, key)


class IdentityKey:
    """A key that is equal to itself alone.

    Two ways that lead to two objects now may lead to one in a later call. So keys that may come to be one have the same
    hash, and the dict or set that holds them, in comparing them, asks for the guards.
    """

    __slots__ = ("number", "tx", "value")

    def __init__(self, tx: Machine, value: Value) -> None:
        self.tx = tx
        self.value = value
        kind = value.python_type()
        alone = not issubclass(kind, torch.Tensor) and (value.is_pinned() or value.source is None)
        self.number = id(value) if alone else id(kind)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and operators.identical(self.tx, self.value, other.value)


class HashedKey:
    """A key whose class says what it is equal to."""

    __slots__ = ("number", "tx", "value")

    def __init__(self, tx: Machine, value: Value) -> None:
        self.tx = tx
        self.value = value
        self.number = int(operators.hash_of(tx, value).constant())

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedKey) and operators.equal(self.tx, self.value, other.value)


class SetValue(Object):
    """A set or frozenset: name -> item."""

    __slots__ = ("cls", "items")
    kind = "a set"

    def __init__(self, items: dict[Any, Value], cls: type = set, source: Source | None = None) -> None:
        self.source = source
        self.items = items
        self.cls = cls

    @classmethod
    def of(cls, tx: Machine, items: Iterable[Value], kind: type = set) -> SetValue:
        """A new set of these items."""
        named: dict[Any, Value] = {}
        for item in items:
            named.setdefault(hash_key(tx, item), item)
        return cls(named, kind)

    def python_type(self) -> type:
        return self.cls

    def is_constant(self) -> bool:
        return self.cls is frozenset and all(item.is_constant() for item in self.items.values())

    def constant(self) -> Any:
        return self.cls(item.constant() for item in self.items.values())

    def snapshot(self) -> Any:
        return self.cls(item.snapshot() for item in self.items.values())

    def truth(self, tx: Machine) -> bool:
        return bool(self.items)

    def length(self, tx: Machine) -> int:
        return len(self.items)

    def contains(self, tx: Machine, item: Value) -> Value:
        return boolean(hash_key(tx, item) in self.items)

    def iterate(self, tx: Machine) -> Value:
        return ItemsIterator(list(self.items.values()), type(iter(set())))

    def combine(self, tx: Machine, op: str, other: Value) -> Value | None:
        """The set operators, on anything that is like a set."""
        theirs = _as_set(tx, other)
        if op not in _COMBINE or theirs is None:
            return None
        every = {**theirs.items, **self.items}
        names = operators.BINARY[op](self.items.keys(), theirs.items.keys())
        return SetValue({name: every[name] for name in every if name in names}, self.cls)

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self.combine(tx, op, other)

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        combined = self.combine(tx, op, other)
        if self.cls is not set or not isinstance(combined, SetValue):
            return None
        self.changed(tx)
        self.items = combined.items
        return self

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        theirs = _as_set(tx, other)
        if theirs is None:
            return None
        return boolean(operators.COMPARE[op](self.items.keys(), theirs.items.keys()))

    # -- methods ---------------------------------------------------------------------------------------

    def changed(self, tx: Machine) -> dict[Any, Value]:
        """The items, about to be changed."""
        if self.cls is not set:
            tx.raise_exception(AttributeError, "'frozenset' object cannot be changed")
        if self.source is not None:
            tx.effects.change(self)
        return self.items

    def add_item(self, tx: Machine, item: Value) -> None:
        self.changed(tx).setdefault(hash_key(tx, item), item)

    def m_add(self, tx: Machine, item: Value) -> Value:
        self.changed(tx).setdefault(hash_key(tx, item), item)
        return NONE

    def m_discard(self, tx: Machine, item: Value) -> Value:
        self.changed(tx).pop(hash_key(tx, item), None)
        return NONE

    def m_remove(self, tx: Machine, item: Value) -> Value:
        if self.changed(tx).pop(hash_key(tx, item), None) is None:
            tx.raise_exception(KeyError, item)
        return NONE

    def m_pop(self, tx: Machine) -> Value:
        items = self.changed(tx)
        if not items:
            tx.raise_exception(KeyError, "pop from an empty set")
        return items.pop(next(iter(items)))

    def m_clear(self, tx: Machine) -> Value:
        self.changed(tx).clear()
        return NONE

    def m_copy(self, tx: Machine) -> Value:
        return SetValue(dict(self.items), self.cls)

    def m_update(self, tx: Machine, *others: Value) -> Value:
        for other in others:
            for item in other.unpack(tx):
                self.m_add(tx, item)
        return NONE

    def _fold(self, tx: Machine, op: str, others: tuple[Value, ...]) -> Value:
        result: Value = SetValue(dict(self.items), self.cls)
        for other in others:
            assert isinstance(result, SetValue)
            combined = result.combine(tx, op, SetValue.of(tx, other.unpack(tx)))
            assert combined is not None
            result = combined
        return result

    def m_union(self, tx: Machine, *others: Value) -> Value:
        return self._fold(tx, "|", others)

    def m_intersection(self, tx: Machine, *others: Value) -> Value:
        return self._fold(tx, "&", others)

    def m_difference(self, tx: Machine, *others: Value) -> Value:
        return self._fold(tx, "-", others)

    def m_symmetric_difference(self, tx: Machine, other: Value) -> Value:
        return self._fold(tx, "^", (other,))

    def m_issubset(self, tx: Machine, other: Value) -> Value:
        return boolean(self.items.keys() <= SetValue.of(tx, other.unpack(tx)).items.keys())

    def m_issuperset(self, tx: Machine, other: Value) -> Value:
        return boolean(self.items.keys() >= SetValue.of(tx, other.unpack(tx)).items.keys())

    def m_isdisjoint(self, tx: Machine, other: Value) -> Value:
        return boolean(self.items.keys().isdisjoint(SetValue.of(tx, other.unpack(tx)).items.keys()))

    # -- after capture ---------------------------------------------------------------------------------

    def children(self) -> Iterator[Value]:
        return iter(self.items.values())

    def reconstruct(self, out: Assembler) -> None:
        if self.cls is frozenset:
            out.call(frozenset, TupleValue(list(self.items.values())))
            return
        for item in self.items.values():
            out.load(item)
        out.build("set", len(self.items))

    def write_back(self, out: Assembler) -> None:
        """Emit the new contents."""
        out.call(replace_members, self, TupleValue(list(self.items.values())))
        out.pop()


def _as_set(tx: Machine, other: Value) -> SetValue | None:
    if isinstance(other, SetValue):
        return other
    if other.python_type().__name__ in ("dict_keys", "odict_keys", "dict_items", "odict_items"):
        return SetValue.of(tx, other.unpack(tx))
    return None


def replace_members(target: set[Any], items: tuple[Any, ...]) -> None:
    """Gives a set new contents."""
    target.clear()
    target.update(items)


@builds(set, frozenset, exact=True)
def build_set(tx: Machine, obj: set[Any], source: Source) -> Value:
    """A set is guarded whole; what is not a literal in it, by identity."""
    watch.type_of(tx, source, type(obj))
    return members_of(tx, obj, source)


def members_of(tx: Machine, obj: set[Any], source: Source) -> SetValue:
    """What a set, or an instance of a subclass, holds."""
    watch.members(tx, source, obj)
    items = [wrap(tx, item, ConstSource(item)) for item in obj]
    kind = frozenset if isinstance(obj, frozenset) else set
    return SetValue({hash_key(tx, item): item for item in items}, kind, source)


makes(set, frozenset)(lambda obj: SetValue({item: fresh(item) for item in obj}, type(obj)))
