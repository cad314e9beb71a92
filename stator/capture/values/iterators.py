"""Iterator values: the builtin ones and those of itertools.

Each is a small state machine over other values, as lazy as its Python counterpart.
Invariant: iterating an iterator gives itself; `next_item` gives None once exhausted, and stays so.
Neighbours: `builtin.py` and `builtin_types.py` (constructors), the machine (generators are its own).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.capture.value import Raised
from stator.capture.values.base import Object
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


class IteratorValue(Object):
    """What all iterators share."""

    __slots__ = ()
    kind = "an iterator"

    def truth(self, tx: Machine) -> bool:
        return True

    def iterate(self, tx: Machine) -> Value:
        return self

    def contains(self, tx: Machine, item: Value) -> Value:
        raise self.refuse("the 'in' operator")


class ItemsIterator(IteratorValue):
    """Over a fixed list of values."""

    __slots__ = ("cls", "index", "items")

    def __init__(self, items: Sequence[Value], cls: type = type(iter([]))) -> None:  # noqa: B008
        super().__init__()
        self.items = items
        self.index = 0
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        if self.index >= len(self.items):
            return None
        item = self.items[self.index]
        self.index += 1
        return item

    def m___length_hint__(self, tx: Machine) -> Value:
        return fresh(max(0, len(self.items) - self.index))

    def children(self) -> Iterator[Value]:
        return iter(self.items[self.index :])

    def reconstruct(self, out: Assembler) -> None:
        rest = self.items[self.index :]
        out.call(_iterator_of, *rest)


def _iterator_of(*items: object) -> Iterator[object]:
    return iter(items)


class IndexIterator(IteratorValue):
    """`iter()` of an object that has only `__getitem__`."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Value) -> None:
        super().__init__()
        self.owner = owner
        self.index = 0

    def next_item(self, tx: Machine) -> Value | None:
        try:
            item = self.owner.get_item(tx, fresh(self.index))
        except Raised as raised:
            if issubclass(raised.value.python_type(), IndexError | StopIteration):
                return None
            raise
        self.index += 1
        return item


class Enumerate(IteratorValue):
    """`enumerate(inner, start)`."""

    __slots__ = ("count", "inner", "pair")

    def __init__(self, inner: Value, start: int, pair: Callable[[list[Value]], Value]) -> None:
        super().__init__()
        self.inner = inner
        self.count = start
        self.pair = pair

    def python_type(self) -> type:
        return enumerate

    def next_item(self, tx: Machine) -> Value | None:
        item = self.inner.next_item(tx)
        if item is None:
            return None
        self.count += 1
        return self.pair([fresh(self.count - 1), item])


class Zip(IteratorValue):
    """`zip(*inner, strict=…)`; with a function instead of the tuple maker it is `map`."""

    __slots__ = ("cls", "done", "inner", "join", "strict")

    def __init__(
        self, inner: list[Value], join: Callable[[Machine, list[Value]], Value], cls: type = zip, strict: bool = False
    ) -> None:
        super().__init__()
        self.inner = inner
        self.join = join
        self.cls = cls
        self.strict = strict
        self.done = not inner

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        if self.done:
            return None
        items: list[Value] = []
        for position, iterator in enumerate(self.inner):
            item = iterator.next_item(tx)
            if item is None:
                self.done = True
                self._check(tx, position)
                return None
            items.append(item)
        return self.join(tx, items)

    def _check(self, tx: Machine, position: int) -> None:
        if not self.strict:
            return
        longer = position > 0 or any(rest.next_item(tx) is not None for rest in self.inner[1:])
        if longer:
            word = "shorter" if position > 0 else "longer"
            tx.raise_exception(
                ValueError, f"zip() argument {position + 1 if position else 2} is {word} than argument 1"
            )


class Filter(IteratorValue):
    """`filter(test, inner)`; `keep` says which outcome stays (`filterfalse`)."""

    __slots__ = ("inner", "keep", "test")

    def __init__(self, test: Callable[[Machine, Value], bool], inner: Value, keep: bool = True) -> None:
        super().__init__()
        self.test = test
        self.inner = inner
        self.keep = keep

    def python_type(self) -> type:
        return filter

    def next_item(self, tx: Machine) -> Value | None:
        while (item := self.inner.next_item(tx)) is not None:
            if self.test(tx, item) is self.keep:
                return item
        return None


class Chain(IteratorValue):
    """`chain.from_iterable(outer)`."""

    __slots__ = ("cls", "current", "outer")

    def __init__(self, outer: Value, cls: type) -> None:
        super().__init__()
        self.outer = outer
        self.current: Value | None = None
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        while True:
            if self.current is None:
                following = self.outer.next_item(tx)
                if following is None:
                    return None
                self.current = following.iterate(tx)
            item = self.current.next_item(tx)
            if item is not None:
                return item
            self.current = None


class Counter(IteratorValue):
    """`itertools.count(start, step)`."""

    __slots__ = ("cls", "step", "value")

    def __init__(self, start: int | float, step: int | float, cls: type) -> None:
        super().__init__()
        self.value = start
        self.step = step
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        value = self.value
        self.value = value + self.step
        return fresh(value)

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.cls, fresh(self.value), fresh(self.step))


class Repeat(IteratorValue):
    """`itertools.repeat(item, times)`; None repeats for ever."""

    __slots__ = ("cls", "item", "times")

    def __init__(self, item: Value, times: int | None, cls: type) -> None:
        super().__init__()
        self.item = item
        self.times = times
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.item


class Steps(IteratorValue):
    """An iterator given by a Python generator function over values: the rest of itertools."""

    __slots__ = ("cls", "steps")

    def __init__(self, steps: Iterator[Value], cls: type) -> None:
        super().__init__()
        self.steps = steps
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        return next(self.steps, None)


class CallableIterator(IteratorValue):
    """`iter(function, sentinel)`."""

    __slots__ = ("done", "function", "same", "sentinel")

    def __init__(self, function: Value, sentinel: Value, same: Callable[[Machine, Value, Value], bool]) -> None:
        super().__init__()
        self.function = function
        self.sentinel = sentinel
        self.same = same
        self.done = False

    def python_type(self) -> type:
        return type(iter(int, 1))

    def next_item(self, tx: Machine) -> Value | None:
        if self.done:
            return None
        item = self.function.call(tx, (), {})
        if self.same(tx, item, self.sentinel):
            self.done = True
            return None
        return item
