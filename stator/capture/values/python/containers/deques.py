"""Deques: lists that may be bounded, and whose iterators take no change.

Neighbours: `sequence.py` (lists), `storages.py` (subclasses).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.source import AttrSource
from stator.capture.values import mirror, watch
from stator.capture.values.base import Builtin
from stator.capture.values.python import operators
from stator.capture.values.python.containers.lists import ListIterator, ListValue, fill_returned
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import builds, fresh, makes

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value


@value_class
class DequeValue(ListValue):
    """A `collections.deque`."""

    kind = "a deque"

    limit: int | None = None

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
        return DequeIterator(self, list(self.values(tx)))

    def m_append(self, tx: Machine, item: Value, /) -> Value | None:
        return super().m_append(tx, item) if self.limit is None else None

    def m_popleft(self, tx: Machine, /) -> Value | None:
        return self.changed(tx).pop(0) if self.length(tx) else None

    def m_extend(self, tx: Machine, other: Value, /) -> Value | None:
        return super().m_extend(tx, other) if self.limit is None else None

    def m_copy(self, tx: Machine, /) -> Value:
        return DequeValue(list(self.values(tx)), limit=self.limit)

    def take_back(self, seen: mirror.Mirror, obj: Any) -> None:
        if obj.maxlen != self.limit and self.source is not None:
            raise self.refuse("changing its maxlen")
        self.limit = obj.maxlen
        super().take_back(seen, obj)

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(self.limit) if name == "maxlen" else super().get_attr(tx, name)

    def reconstruct(self, out: Assembler) -> None:
        out.call(deque, TupleValue(self.items or []), fresh(self.limit))


@value_class
class DequeIterator(ListIterator):
    """`iter(deque)`: a change of the deque is an error."""

    #: The items when the iteration began.
    expected: list[Value]

    def python_type(self) -> type:
        return type(iter(deque()))

    def next_item(self, tx: Machine) -> Value | None:
        if not self.done and not mirror.same_values(self.owner.values(tx), self.expected):
            if len(self.expected) == self.index:
                raise self.refuse("a deque that has changed at its end")
            tx.raise_exception(RuntimeError, "deque mutated during iteration")
        return super().next_item(tx)


@builds(deque, exact=True)
def build_deque(tx: Machine, obj: deque[Any], source: Source) -> Value:
    """A deque is read when used."""
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "maxlen"), obj.maxlen)
    return DequeValue(None, source=source, real=obj, limit=obj.maxlen)


mirror.RETURNED[deque] = lambda seen, obj: fill_returned(seen, DequeValue([], limit=obj.maxlen), obj)
makes(deque)(lambda obj: DequeValue([fresh(item) for item in obj], limit=obj.maxlen))
