"""Iterator values: the builtin ones and those of itertools.

Each is a small state machine over other values, as lazy as its Python counterpart, and is rebuilt as the real iterator
in the state that it has reached: over the same object, so that it sees what happens to it afterwards.
Invariant: iterating an iterator gives itself; `next_item` gives None once exhausted, and stays so.
Neighbours: `builtin.py` and `builtin_types.py` (constructors), `generators.py` (generators are the machine's own).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

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


class ItemsIterator(IteratorValue):
    """Over a fixed list of values: all items of `owner`, where that is known and cannot change.

    `remade` is the call that gives it anew, from its first item on.
    """

    __slots__ = ("cls", "index", "items", "owner", "remade")

    def __init__(
        self,
        items: Sequence[Value],
        cls: type = type(iter([])),  # noqa: B008
        owner: Value | None = None,
        remade: tuple[Callable[..., Any], Sequence[Value]] | None = None,
    ) -> None:
        super().__init__()
        self.items = items
        self.remade = remade
        self.index = 0
        self.cls = cls
        self.owner = owner

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


class IndexIterator(IteratorValue):
    """`iter()` of an object that has only `__getitem__`."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Value) -> None:
        super().__init__()
        self.owner = owner
        self.index = 0

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

    def children(self) -> Iterator[Value]:
        yield self.owner

    def reconstruct(self, out: Assembler) -> None:
        out.call(advanced, self.owner, fresh(self.index))


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

    def children(self) -> Iterator[Value]:
        yield self.inner

    def reconstruct(self, out: Assembler) -> None:
        out.call(enumerate, self.inner, fresh(self.count))


class Zip(IteratorValue):
    """`zip(*inner, strict=…)`; with a function that is called on the items, `map` and `starmap`."""

    __slots__ = ("cls", "done", "function", "inner", "join", "strict")

    def __init__(
        self,
        inner: list[Value],
        join: Callable[[Machine, list[Value]], Value],
        cls: type = zip,
        strict: bool = False,
        function: Value | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.join = join
        self.cls = cls
        self.strict = strict
        self.function = function
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

    def children(self) -> Iterator[Value]:
        if self.function is not None:
            yield self.function
        yield from self.inner

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        elif self.function is not None:
            out.call(self.cls, self.function, *self.inner)
        else:
            out.call(_strict_zip if self.strict else zip, *self.inner)


def _strict_zip(*inner: Iterator[Any]) -> Iterator[Any]:
    return zip(*inner, strict=True)


class Filter(IteratorValue):
    """`filter(function, inner)`; `keep` says which outcome of the test stays (`filterfalse`)."""

    __slots__ = ("function", "inner", "keep", "test")

    def __init__(
        self, function: Value, test: Callable[[Machine, Value], bool], inner: Value, keep: bool = True
    ) -> None:
        super().__init__()
        self.function = function
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

    def children(self) -> Iterator[Value]:
        yield self.function
        yield self.inner

    def reconstruct(self, out: Assembler) -> None:
        out.call(filter if self.keep else itertools.filterfalse, self.function, self.inner)


class While(IteratorValue):
    """`takewhile(function, inner)`, and with `keep` False `dropwhile`."""

    __slots__ = ("function", "holds", "inner", "keep", "test")

    def __init__(self, function: Value, test: Callable[[Machine, Value], bool], inner: Value, keep: bool) -> None:
        super().__init__()
        self.function = function
        self.test = test
        self.inner = inner
        self.keep = keep
        #: Whether the test has held for every item so far.
        self.holds = True

    def python_type(self) -> type:
        return itertools.takewhile if self.keep else itertools.dropwhile

    def next_item(self, tx: Machine) -> Value | None:
        while self.holds or not self.keep:
            item = self.inner.next_item(tx)
            if item is None:
                return None
            self.holds = self.holds and self.test(tx, item)
            if self.holds is self.keep:
                return item
        return None

    def children(self) -> Iterator[Value]:
        yield self.function
        yield self.inner

    def reconstruct(self, out: Assembler) -> None:
        if self.holds:
            out.call(self.python_type(), self.function, self.inner)
        elif self.keep:
            out.call(finished)
        else:
            out.call(itertools.islice, self.inner, fresh(None))


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

    def children(self) -> Iterator[Value]:
        if self.current is not None:
            yield self.current
        yield self.outer

    def reconstruct(self, out: Assembler) -> None:
        out.call(_chain, self.outer, *([] if self.current is None else [self.current]))


def _chain(outer: Iterator[Any], *current: Iterator[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.chain(current, outer))


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

    def children(self) -> Iterator[Value]:
        yield self.item

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.cls, self.item, *([] if self.times is None else [fresh(self.times)]))


class Cycle(IteratorValue):
    """`itertools.cycle(items)`; the items are read at once."""

    __slots__ = ("index", "items")

    def __init__(self, items: list[Value]) -> None:
        super().__init__()
        self.items = items
        self.index = 0

    def python_type(self) -> type:
        return itertools.cycle

    def next_item(self, tx: Machine) -> Value | None:
        if not self.items:
            return None
        item = self.items[self.index]
        self.index = (self.index + 1) % len(self.items)
        return item

    def children(self) -> Iterator[Value]:
        return iter(self.items)

    def reconstruct(self, out: Assembler) -> None:
        out.call(_cycle, *self.items[self.index :], *self.items[: self.index])


def _cycle(*items: Any) -> Iterator[Any]:
    return itertools.cycle(items)


class Slice(IteratorValue):
    """`itertools.islice(inner, start, stop, step)`."""

    __slots__ = ("inner", "position", "step", "stop", "wanted")

    def __init__(self, inner: Value, start: int, stop: int | None, step: int) -> None:
        super().__init__()
        self.inner = inner
        self.wanted = start
        self.stop = stop
        self.step = step
        #: How many items have been taken from `inner`.
        self.position = 0

    def python_type(self) -> type:
        return itertools.islice

    def next_item(self, tx: Machine) -> Value | None:
        while self.stop is None or self.position < self.stop:
            item = self.inner.next_item(tx)
            if item is None:
                self.stop = self.position
                return None
            self.position += 1
            if self.position > self.wanted:
                self.wanted += self.step
                return item
        return None

    def children(self) -> Iterator[Value]:
        yield self.inner

    def reconstruct(self, out: Assembler) -> None:
        stop = None if self.stop is None else max(0, self.stop - self.position)
        start = self.wanted - self.position
        out.call(itertools.islice, self.inner, fresh(start), fresh(stop), fresh(self.step))


class Accumulate(IteratorValue):
    """`itertools.accumulate(inner, function, initial=…)`; `join` does what the function does."""

    __slots__ = ("function", "inner", "join", "started", "total")

    def __init__(
        self, function: Value, join: Callable[[Machine, Value, Value], Value], inner: Value, initial: Value | None
    ) -> None:
        super().__init__()
        self.function = function
        self.join = join
        self.inner = inner
        self.total = initial
        #: Whether the total has been given.
        self.started = False

    def python_type(self) -> type:
        return itertools.accumulate

    def next_item(self, tx: Machine) -> Value | None:
        if self.started or self.total is None:
            item = self.inner.next_item(tx)
            if item is None:
                return None
            self.total = item if self.total is None else self.join(tx, self.total, item)
        self.started = True
        return self.total

    def children(self) -> Iterator[Value]:
        yield from (self.function, self.inner)
        if self.total is not None:
            yield self.total

    def reconstruct(self, out: Assembler) -> None:
        total = [] if self.total is None else [self.total]
        out.call(_accumulate, self.function, self.inner, fresh(self.started), *total)


def _accumulate(function: Any, inner: Iterator[Any], started: bool, *total: Any) -> Iterator[Any]:
    if not total:
        return itertools.accumulate(inner, function)
    iterator = itertools.accumulate(inner, function, initial=total[0])
    if started:
        next(iterator)
    return iterator


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

    def children(self) -> Iterator[Value]:
        yield from (self.function, self.sentinel)

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        else:
            out.call(iter, self.function, self.sentinel)
