"""Deques: lists that may be bounded, and whose iterators take no change.

Neighbours: `sequence.py` (lists), `storages.py` (subclasses).
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.source import AttrSource
from stator.capture.values import mirror, watch
from stator.capture.values.base import Builtin
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.lists import ListIterator, ListValue, fill_returned
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import builds, fresh, makes
from stator.sizes import minimum

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value
    from stator.sizes import Extent


@value_class
class DequeValue(ListValue):
    """A `collections.deque`."""

    kind = "a deque"

    limit: int | None = None
    #: How often something was put in or taken out, which may leave equal contents.
    state: int = field(init=False, default=0)

    def python_type(self) -> type:
        return deque

    def builtin(self) -> type:
        return deque

    def mirrored(self, seen: mirror.Mirror) -> Any:
        made: deque[Any] = deque(maxlen=self.limit)
        self.fill(seen, made)
        return made

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, limit=self.limit)

    def get_item(self, tx: Machine, key: Value) -> Value:
        if key.is_constant() and type(key.constant()) is int:
            return super().get_item(tx, key)
        return Builtin.get_item(self, tx, key)

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if isinstance(other, DequeValue) if op == "+" else op == "*" and mirror.is_index(other):
            return mirror.apply(tx, operators.BINARY[op], (self, other))
        return None

    def iterate(self, tx: Machine) -> Value:
        self.values(tx)
        return DequeIterator(self, self.state)

    def values(self, tx: Machine) -> list[Value]:
        unread = self.items is None
        items = super().values(tx)
        if unread:
            self.bound(items)
        return items

    def length(self, tx: Machine) -> int:
        found = super().length(tx)
        return found if self.limit is None else min(found, self.limit)

    def bounded(self, extent: Extent) -> Extent:
        return extent if self.limit is None else minimum(extent, self.limit)

    def grow(self, tx: Machine, more: list[Value]) -> None:
        super().grow(tx, more)
        self.state += len(more)
        self.bound(self.added if self.items is None else self.items)

    def bound(self, items: list[Value]) -> None:
        """Drops what is too many from the front."""
        if self.limit is not None and len(items) > self.limit:
            del items[: len(items) - self.limit]

    def m_pop(self, tx: Machine, /) -> Value | None:
        return self.taken(tx, -1)

    def m_popleft(self, tx: Machine, /) -> Value | None:
        return self.taken(tx, 0)

    def taken(self, tx: Machine, index: int) -> Value | None:
        """The item, taken out; None where there is none."""
        if not self.length(tx):
            return None
        self.state += 1
        return self.changed(tx).pop(index)

    def m_clear(self, tx: Machine, /) -> Value:
        self.state += self.length(tx)
        return super().m_clear(tx)

    def m_reverse(self, tx: Machine, /) -> Value:
        self.changed(tx).reverse()
        return NONE

    def m_copy(self, tx: Machine, /) -> Value:
        return DequeValue(list(self.values(tx)), limit=self.limit)

    def take_back(self, seen: mirror.Mirror, obj: Any) -> None:
        if obj.maxlen != self.limit and self.source is not None:
            raise self.refuse("changing its maxlen")
        self.limit = obj.maxlen
        before = list(self.values(seen.tx))
        super().take_back(seen, obj)
        self.state += not mirror.same_values(self.values(seen.tx), before)

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(self.limit) if name == "maxlen" else super().get_attr(tx, name)

    def reconstruct(self, out: Assembler) -> None:
        out.call(deque, TupleValue(self.items or []), fresh(self.limit))


@value_class
class DequeIterator(ListIterator):
    """`iter(deque)`: putting something in or taking something out of the deque is an error."""

    #: That of the deque when the iteration began.
    state: int

    def python_type(self) -> type:
        return type(iter(deque()))

    def is_stale(self) -> bool:
        """Whether the deque has changed since."""
        assert isinstance(self.owner, DequeValue)
        return self.owner.state != self.state

    def next_item(self, tx: Machine) -> Value | None:
        if self.is_stale():
            tx.raise_exception(RuntimeError, "deque mutated during iteration")
        return super().next_item(tx)

    def reconstruct(self, out: Assembler) -> None:
        if self.is_stale():
            raise self.refuse("iterating over a deque that has changed")
        super().reconstruct(out)


@builds(deque, exact=True)
def build_deque(tx: Machine, obj: deque[Any], source: Source) -> Value:
    """A deque is read when used."""
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "maxlen"), obj.maxlen)
    return DequeValue(None, source=source, real=obj, limit=obj.maxlen)


mirror.RETURNED[deque] = lambda seen, obj: fill_returned(seen, DequeValue([], limit=obj.maxlen), obj)
makes(deque)(lambda obj: DequeValue([fresh(item) for item in obj], limit=obj.maxlen))
