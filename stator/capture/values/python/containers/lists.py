"""Lists, met or made by the frame, and iterators over them.

A list with a source is materialised when its items are first needed, under a guard on its length; its items keep
their sources. Until then only what the frame adds to it is noted, and its length may be symbolic.
Invariant: changes stay in the value and are written back once, as the whole contents or as what was added.
Neighbours: `sequence.py` (what tuples and lists share), `deques.py`, `effects.py`.
"""

from __future__ import annotations

import operator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.source import ItemSource, LengthSource
from stator.capture.value import Value
from stator.capture.values import mirror, watch
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.sequence import SequenceValue, TupleValue
from stator.capture.values.python.iterators import IteratorValue, advanced, finished
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import builds, fresh, makes, wrap
from stator.sizes import Size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.sizes import Extent


@value_class
class ListValue(SequenceValue):
    """A list. `real` is the object until its items are first needed; until then, `added` is what it has gained."""

    kind = "a list"

    items: list[Value] | None
    #: The list, or deque, that existed before.
    real: Any = None
    added: list[Value] = field(init=False, default_factory=list)

    def python_type(self) -> type:
        return list

    def builtin(self) -> type:
        return list

    def mirrored(self, seen: mirror.Mirror) -> Any:
        made: list[Any] = []
        self.fill(seen, made)
        return made

    def fill(self, seen: mirror.Mirror, made: Any) -> None:
        """Mirrors the contents."""
        seen.tie(self, made)
        self.builtin().extend(made, [seen.python(item) for item in self.values(seen.tx)])  # type: ignore[attr-defined]
        seen.watch(self, made)

    def take_back(self, seen: mirror.Mirror, obj: Any) -> None:
        self.changed(seen.tx)[:] = [seen.value(item) for item in self.builtin().__iter__(obj)]  # type: ignore[attr-defined]

    def values(self, tx: Machine) -> list[Value]:
        if self.items is None:
            real = self.real or ()
            watch.length(tx, self.source, len(real))
            assert self.source is not None
            source = self.source
            self.items = []
            self.items.extend(wrap(tx, item, ItemSource(source, index)) for index, item in enumerate(real))
            self.items += self.added
        return self.items

    def length(self, tx: Machine) -> int:
        if self.items is not None:
            return len(self.items)
        real = self.real or ()
        watch.length(tx, self.source, len(real))
        return len(real) + len(self.added)

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value | None:
        return self.count(tx) if function is len else super().by_builtin(tx, function, *args, **kwargs)

    def truth(self, tx: Machine) -> bool:
        return self.count(tx).truth(tx)

    def count(self, tx: Machine) -> Value:
        """`len()` of it: of a list that nobody has read yet and that grows from call to call, a size."""
        if self.items is None and self.source is not None:
            sizes = tx.graph.sizes
            symbol = sizes.number(LengthSource(self.source), len(self.real or ()))
            if symbol is not None:
                extent = sizes.simplify(self.bounded(symbol.size + len(self.added)))
                return SymbolicValue(extent, sizes) if isinstance(extent, Size) else fresh(extent)
        return fresh(self.length(tx))

    def bounded(self, extent: Extent) -> Extent:
        """What there is room for of so many items."""
        return extent

    def get_item(self, tx: Machine, key: Value) -> Value:
        if self.items is None and key.is_constant() and type(key.constant()) is int:
            index: int = key.constant()
            if -len(self.added) <= index < 0:
                return self.added[index]
        return super().get_item(tx, key)

    def grow(self, tx: Machine, more: list[Value]) -> None:
        """Puts items at the end: where nobody has read the list, it need not have the same length in every call."""
        if self.items is None:
            self.added += more
            tx.effects.change(self)
        else:
            self.changed(tx).extend(more)

    def like(self, items: list[Value]) -> Value:
        return ListValue(items)

    def changed(self, tx: Machine) -> list[Value]:
        """The items, about to be changed."""
        items = self.values(tx)
        if self.source is not None:
            tx.effects.change(self)
        return items

    def snapshot(self) -> Any:
        if self.items is None:
            raise self.refuse("using an unread list as a constant")
        return [item.snapshot() for item in self.items]

    def iterate(self, tx: Machine) -> Value:
        self.values(tx)
        return ListIterator(self)

    def graph_argument(self) -> tuple[Any, Any]:
        if self.items is None:
            raise self.refuse("passing an unread list to a torch function")
        pairs = [item.graph_argument() for item in self.items]
        return [node for node, _ in pairs], [fake for _, fake in pairs]

    # -- changes ---------------------------------------------------------------------------------------

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        index = key.constant() if key.is_constant() else None
        if type(index) is int and -self.length(tx) <= index < self.length(tx):
            self.changed(tx)[index] = value
        else:
            super().set_item(tx, key, value)

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op == "+" and type(self) is ListValue and isinstance(other, SequenceValue):
            self.grow(tx, other.unpack(tx))
            return self
        if op in ("+", "*"):
            return mirror.apply(tx, operators.INPLACE[op], (self, other))
        return None

    def add_item(self, tx: Machine, item: Value) -> None:
        self.changed(tx).append(item)

    def m_append(self, tx: Machine, item: Value, /) -> Value | None:
        self.grow(tx, [item])
        return NONE

    def m_extend(self, tx: Machine, other: Value, /) -> Value | None:
        if self.items is not None and not isinstance(other, ListValue | TupleValue):
            return None
        self.grow(tx, other.unpack(tx))
        return NONE

    def m_pop(self, tx: Machine, /) -> Value | None:
        return self.changed(tx).pop() if self.length(tx) else None

    def m_clear(self, tx: Machine, /) -> Value:
        self.changed(tx).clear()
        return NONE

    def m_copy(self, tx: Machine, /) -> Value:
        return ListValue(list(self.values(tx)))

    # -- after capture ---------------------------------------------------------------------------------

    def children(self) -> Iterator[Value]:
        return iter(self.added if self.items is None else self.items)

    def reconstruct(self, out: Assembler) -> None:
        if contains_itself(self):
            out.build("list", 0)
            out.remember(self)
            self.write_back(out)
            return
        for item in self.items or ():
            out.load(item)
        out.build("list", len(self.items or ()))

    def write_back(self, out: Assembler) -> None:
        """Emit the new contents, or what has been added to them."""
        if self.items is None:
            out.call(operator.iadd, self, TupleValue(self.added))
        else:
            out.call(replace_items, self, TupleValue(self.items))
        out.pop()


def contains_itself(value: Value) -> bool:
    """Whether an object made by the frame is reached from itself."""
    seen: set[int] = set()
    waiting = list(value.children())
    while waiting:
        inner = waiting.pop()
        if inner is value:
            return True
        if inner.source is None and id(inner) not in seen:
            seen.add(id(inner))
            waiting.extend(inner.children())
    return False


def replace_items(target: Any, items: tuple[Any, ...]) -> None:
    """Gives a list or a deque new contents."""
    if isinstance(target, list):
        target[:] = items
    else:
        target.clear()
        target.extend(items)


@value_class
class ListIterator(IteratorValue):
    """`iter(list)`: sees later changes of the list."""

    owner: ListValue = part()
    index: int = field(init=False, default=0)
    #: Exhausted for good, even if the list grows afterwards.
    done: bool = field(init=False, default=False)

    def python_type(self) -> type:
        return type(iter([]))

    def next_item(self, tx: Machine) -> Value | None:
        items = self.owner.values(tx)
        if self.done or self.index >= len(items):
            self.done = True
            return None
        self.index += 1
        return items[self.index - 1]

    def m___length_hint__(self, tx: Machine, /) -> Value:
        return fresh(0 if self.done else max(0, len(self.owner.values(tx)) - self.index))

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        else:
            out.call(advanced, self.owner, fresh(self.index))


@value_class
class ReversedList(IteratorValue):
    """`reversed(list)`: sees later changes of the list."""

    owner: ListValue = part()
    #: Of the next item.
    index: int

    def python_type(self) -> type:
        return type(reversed([]))

    def next_item(self, tx: Machine) -> Value | None:
        items = self.owner.values(tx)
        if not 0 <= self.index < len(items):
            self.index = -1
            return None
        self.index -= 1
        return items[self.index + 1]

    def m___length_hint__(self, tx: Machine, /) -> Value:
        return fresh(0 if len(self.owner.values(tx)) < self.index + 1 else self.index + 1)

    def reconstruct(self, out: Assembler) -> None:
        out.call(reversed_at, self.owner, fresh(self.index))


def reversed_at(items: list[Any], index: int) -> Iterator[Any]:
    """`reversed(items)` when it is about to give the item of this index."""
    iterator = reversed(items)
    iterator.__setstate__(index)
    return iterator


@builds(list, exact=True)
def build_list(tx: Machine, obj: list[Any], source: Source) -> Value:
    """A list is read when used."""
    watch.type_of(tx, source, type(obj))
    return ListValue(None, source=source, real=obj)


def returned_list(seen: mirror.Mirror, obj: Any) -> Value:
    """A new list; it may hold itself."""
    return fill_returned(seen, ListValue([]), obj)


def fill_returned(seen: mirror.Mirror, made: ListValue, obj: Any) -> Value:
    """Gives a new list or deque what its mirror holds."""
    seen.tie(made, obj)
    assert made.items is not None
    made.items.extend(seen.value(item) for item in obj)
    return made


mirror.RETURNED[list] = returned_list


makes(list)(lambda obj: ListValue([fresh(item) for item in obj]))
