"""Sets and frozensets, with items named as dict keys are.

A real set cannot be indexed, so its items are constants or objects by identity, and the guard is on all of
them, in the order in which the set gives them. Neighbours: `mapping.py` (key naming), `sequence.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.fields import part, value_class
from stator.capture.source import ConstSource
from stator.capture.values import mirror, watch
from stator.capture.values.base import Builtin
from stator.capture.values.fold import run
from stator.capture.values.lookup import look_up
from stator.capture.values.methods import COMPARE
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE, boolean
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.iterators import IteratorValue, advanced, finished
from stator.capture.values.registry import LITERALS, builds, fresh, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value

#: The operators that combine two sets.
COMBINING = frozenset("|&-^")

#: Where the methods are that `dataclasses` writes: they only compute.
GENERATED = "<string>"


def hash_key(tx: Machine, key: Value, kept: bool = False) -> Any:
    """What stands for a key in dicts and sets of the capture; one that a real dict has `kept` is not hashed again."""
    key.pin(tx)
    if key.is_constant():
        operators.pin_nan(tx, key)
        for name in ("__hash__", "__eq__"):
            look_up(tx, key.python_type(), name)
        plain = key.constant()
        run(tx, hash, (plain,))
        return plain
    if isinstance(key, TupleValue):
        return tuple(hash_key(tx, item) for item in key.items)
    method = look_up(tx, key.python_type(), "__hash__")
    if method is None:
        mirror.apply(tx, hash, (key,), mute=True)
    if method not in mirror.BY_IDENTITY:
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
        if isinstance(other, HashedKey):
            return operators.equal(self.tx, self.value, other.value)
        plain = not isinstance(other, IdentityKey | tuple)
        return plain and operators.equal(self.tx, self.value, fresh(other))


@value_class
class SetValue(Builtin):
    """A set or frozenset: name -> item."""

    kind = "a set"

    items: dict[Any, Value] = part()
    cls: type = set
    #: What a set from outside held when it was met.
    before: dict[Any, Value] = field(init=False)

    def __post_init__(self) -> None:
        self.before = {} if self.source is None else dict(self.items)

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
        if item.is_constant() and type(item.constant()) in LITERALS:
            return boolean(hash_key(tx, item) in self.items)
        return super().contains(tx, item)

    def iterate(self, tx: Machine) -> Value:
        return SetIterator(self, self.unpack(tx))

    def unpack(self, tx: Machine) -> list[Value]:
        """The items in the order in which a set gives them."""
        seen = mirror.Mirror(tx)
        return [seen.value(item) for item in seen.python(self)]

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operate(tx, operators.BINARY, op, other)

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operate(tx, operators.INPLACE, op, other) if self.cls is set else None

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operate(tx, COMPARE, op, other)

    def _operate(self, tx: Machine, table: dict[str, Callable[[Any, Any], Any]], op: str, other: Value) -> Value | None:
        if (table is COMPARE or op in COMBINING) and isinstance(getattr(other, "storage", other), SetValue):
            return mirror.apply(tx, table[op], (self, other))
        return None

    # -- while Python's own code works on it -----------------------------------------------------------

    def mirrored(self, seen: mirror.Mirror) -> Any:
        if self.cls is frozenset:
            return frozenset([seen.python(item) for item in self.items.values()])
        made: set[Any] = set()
        self.fill(seen, made)
        return made

    def fill(self, seen: mirror.Mirror, made: Any) -> None:
        """Mirrors the contents."""
        seen.tie(self, made)
        for item in self.items.values():
            set.add(made, seen.python(item))
        seen.watch(self, made)

    def held(self, tx: Machine) -> list[Value]:
        return list(self.items.values())

    def take_back(self, seen: mirror.Mirror, obj: Any) -> None:
        items = self.changed(seen.tx)
        items.clear()
        for value in map(seen.value, set.__iter__(obj)):
            items[hash_key(seen.tx, value)] = value

    # -- methods ---------------------------------------------------------------------------------------

    def changed(self, tx: Machine) -> dict[Any, Value]:
        """The items, about to be changed."""
        if self.source is not None:
            tx.effects.change(self)
        return self.items

    def add_item(self, tx: Machine, item: Value) -> None:
        self.changed(tx).setdefault(hash_key(tx, item), item)

    def m_add(self, tx: Machine, item: Value, /) -> Value | None:
        if not is_plain_key(item):
            return None
        self.changed(tx).setdefault(hash_key(tx, item), item)
        return NONE

    def m_update(self, tx: Machine, /, *others: Value) -> Value | None:
        if any(issubclass(other.python_type(), set | frozenset | dict) for other in others):
            return None  # their sizes and order decide on the order of the whole
        for other in others:
            for item in other.unpack(tx):
                self.add_item(tx, item)
        return NONE

    def m_discard(self, tx: Machine, item: Value, /) -> Value | None:
        if not is_plain_key(item):
            return None
        self.changed(tx).pop(hash_key(tx, item), None)
        return NONE

    # -- after capture ---------------------------------------------------------------------------------

    def reconstruct(self, out: Assembler) -> None:
        if self.cls is frozenset:
            out.call(frozenset, TupleValue(list(self.items.values())))
            return
        for item in self.items.values():
            out.load(item)
        out.build("set", len(self.items))

    def write_back(self, out: Assembler) -> None:
        """Emit what has come and gone."""
        before, now = ({id(item): item for item in items.values()} for items in (self.before, self.items))
        gone = [item for place, item in before.items() if place not in now]
        new = [item for place, item in now.items() if place not in before]
        out.call(change_members, self, TupleValue(gone), TupleValue(new))
        out.pop()


@value_class
class SetIterator(IteratorValue):
    """`iter(set)`: a change of the set's size is an error."""

    owner: SetValue = part()
    items: list[Value]
    index: int = field(init=False, default=0)

    def python_type(self) -> type:
        return type(iter(set()))

    def next_item(self, tx: Machine) -> Value | None:
        if self.index > len(self.items):
            return None
        if len(self.owner.items) != len(self.items):
            tx.raise_exception(RuntimeError, "Set changed size during iteration")
        if any(not any(item is other for other in self.owner.items.values()) for item in self.items[self.index :]):
            raise self.refuse("a set whose items have changed meanwhile")
        self.index += 1
        return self.items[self.index - 1] if self.index <= len(self.items) else None

    def m___length_hint__(self, tx: Machine, /) -> Value:
        return fresh(max(0, len(self.items) - self.index))

    def reconstruct(self, out: Assembler) -> None:
        if self.index > len(self.items):
            out.call(finished)
        else:
            out.call(advanced, self.owner, fresh(self.index))


def is_plain_key(key: Value) -> bool:
    """Whether comparing it runs nothing of the program's."""
    return key.is_constant() and type(key.constant()) in LITERALS


def change_members(target: set[Any], gone: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Takes items out of a set and puts items in, by the plain methods whatever its class overrides."""
    for item in gone:
        set.discard(target, item)
    for item in new:
        set.add(target, item)


def returned_set(seen: mirror.Mirror, obj: Any) -> Value:
    """A new set."""
    return SetValue.of(seen.tx, map(seen.value, obj), type(obj))


mirror.RETURNED[set] = mirror.RETURNED[frozenset] = returned_set


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
    return SetValue({hash_key(tx, item): item for item in items}, kind, source=source)


makes(set, frozenset)(lambda obj: SetValue({item: fresh(item) for item in obj}, type(obj)))
