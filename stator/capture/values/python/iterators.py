"""What all iterators share, and those over a fixed list of values or over an object's `__getitem__`.

Each is a small state machine over other values, and is rebuilt as the real iterator in the state that it has reached:
over the same object, so that it sees what happens to it afterwards.
Invariant: iterating an iterator gives itself; `next_item` gives None once exhausted, and stays so.
Neighbours: `library/iterators.py` (those that functions give), `generators.py` (generators are the machine's own).
"""

from __future__ import annotations

import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.value import Raised
from stator.capture.values.base import Object
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


@value_class
class IteratorValue(Object):
    """What all iterators share."""

    kind = "an iterator"

    def truth(self, tx: Machine) -> bool:
        return True

    def iterate(self, tx: Machine) -> Value:
        return self

    def contains(self, tx: Machine, item: Value) -> Value:
        raise self.refuse("the 'in' operator")


def advanced(owner: Any, count: int) -> Iterator[Any]:
    """`iter(owner)` after it has given `count` items."""
    iterator = iter(owner)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(count)
    else:
        for _ in itertools.islice(iterator, count):
            pass
    return iterator


def finished() -> Iterator[Any]:
    """An iterator that has nothing left."""
    iterator = iter(())
    next(iterator, None)
    return iterator


@value_class
class ItemsIterator(IteratorValue):
    """Over a fixed list of values: all items of `owner`, where that is known and cannot change.

    `remade` is the call that gives it anew, from its first item on.
    """

    items: Sequence[Value]
    cls: type = type(iter([]))
    owner: Value | None = None
    remade: tuple[Callable[..., Any], Sequence[Value]] | None = None
    index: int = field(init=False, default=0)

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        if self.index >= len(self.items):
            return None
        item = self.items[self.index]
        self.index += 1
        return item

    def m___length_hint__(self, tx: Machine, /) -> Value:
        return fresh(max(0, len(self.items) - self.index))

    def children(self) -> Iterator[Value]:
        yield from self.items[self.index :]
        if self.remade is not None:
            yield from self.remade[1]

    def reconstruct(self, out: Assembler) -> None:
        if self.owner is not None:
            out.call(advanced, self.owner, fresh(self.index))
        elif self.remade is not None:
            function, args = self.remade
            out.call(_passed, fresh(function), fresh(self.index), *args)
        elif self.cls in REBUILT:
            out.call(REBUILT[self.cls], *self.items[self.index :])
        else:
            raise self.refuse(f"a {self.cls.__name__} that leaves the graph")


def _passed(function: Callable[..., Iterator[Any]], count: int, *args: Any) -> Iterator[Any]:
    iterator = function(*args)
    for _ in itertools.islice(iterator, count):
        pass
    return iterator


#: Iterators that are rebuilt from the items that are left.
REBUILT: dict[type, Callable[..., Iterator[Any]]] = {
    type(iter([])): lambda *items: iter(list(items)),
    type(iter(())): lambda *items: iter(items),
}


class OnlyItems:
    """An object that is iterable by its items alone."""

    def __getitem__(self, index: int) -> int:
        raise IndexError(index)


@value_class
class IndexIterator(IteratorValue):
    """`iter()` of an object that has only `__getitem__`."""

    owner: Value = part()
    index: int = field(init=False, default=0)

    def python_type(self) -> type:
        return type(iter(OnlyItems()))

    def next_item(self, tx: Machine) -> Value | None:
        try:
            item = self.owner.get_item(tx, fresh(self.index))
        except Raised as raised:
            if issubclass(raised.value.python_type(), IndexError | StopIteration):
                return None
            raise
        self.index += 1
        return item

    def reconstruct(self, out: Assembler) -> None:
        out.call(advanced, self.owner, fresh(self.index))
