"""What `enumerate`, `zip`, `map`, `filter`, `iter(function, sentinel)` and the functions of `itertools` give.

Each is a state machine over other values, as lazy as its Python counterpart.
Invariant: what is left of it is rebuilt as the real iterator in the state that it has reached.
Neighbours: `python/iterators.py` (what all iterators share), `builtin.py` and `builtin_types.py` (the functions).
"""

from __future__ import annotations

import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.values.python.iterators import IteratorValue, finished
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


@value_class
class Enumerate(IteratorValue):
    """`enumerate(inner, start)`."""

    inner: Value = part()
    #: Of the next item.
    count: int
    pair: Callable[[list[Value]], Value]

    def python_type(self) -> type:
        return enumerate

    def next_item(self, tx: Machine) -> Value | None:
        item = self.inner.next_item(tx)
        if item is None:
            return None
        self.count += 1
        return self.pair([fresh(self.count - 1), item])

    def reconstruct(self, out: Assembler) -> None:
        out.call(enumerate, self.inner, fresh(self.count))


@value_class
class Zip(IteratorValue):
    """`zip(*inner, strict=…)`; with a function that is called on the items, `map` and `starmap`."""

    inner: list[Value] = part()
    join: Callable[[Machine, list[Value]], Value]
    cls: type = zip
    strict: bool = False
    function: Value | None = part(default=None)
    done: bool = field(init=False)

    def __post_init__(self) -> None:
        self.done = not self.inner

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

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        elif self.function is not None:
            out.call(self.cls, self.function, *self.inner)
        else:
            out.call(_strict_zip if self.strict else zip, *self.inner)


def _strict_zip(*inner: Iterator[Any]) -> Iterator[Any]:
    return zip(*inner, strict=True)


@value_class
class Filter(IteratorValue):
    """`filter(function, inner)`; `keep` says which outcome of the test stays (`filterfalse`)."""

    function: Value = part()
    test: Callable[[Machine, Value], bool]
    inner: Value = part()
    keep: bool = True

    def python_type(self) -> type:
        return filter

    def next_item(self, tx: Machine) -> Value | None:
        while (item := self.inner.next_item(tx)) is not None:
            if self.test(tx, item) is self.keep:
                return item
        return None

    def reconstruct(self, out: Assembler) -> None:
        out.call(filter if self.keep else itertools.filterfalse, self.function, self.inner)


@value_class
class While(IteratorValue):
    """`takewhile(function, inner)`, and with `keep` False `dropwhile`."""

    function: Value = part()
    test: Callable[[Machine, Value], bool]
    inner: Value = part()
    keep: bool
    #: Whether the test has held for every item so far.
    holds: bool = field(init=False, default=True)

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

    def reconstruct(self, out: Assembler) -> None:
        if self.holds:
            out.call(self.python_type(), self.function, self.inner)
        elif self.keep:
            out.call(finished)
        else:
            out.call(itertools.islice, self.inner, fresh(None))


@value_class
class Chain(IteratorValue):
    """`chain.from_iterable(outer)`."""

    outer: Value = part()
    cls: type
    current: Value | None = part(init=False, default=None)

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

    def reconstruct(self, out: Assembler) -> None:
        out.call(_chain, self.outer, *([] if self.current is None else [self.current]))


def _chain(outer: Iterator[Any], *current: Iterator[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.chain(current, outer))


@value_class
class Counter(IteratorValue):
    """`itertools.count(start, step)`."""

    #: What it gives next.
    value: int | float
    step: int | float
    cls: type

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        value = self.value
        self.value = value + self.step
        return fresh(value)

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.cls, fresh(self.value), fresh(self.step))


@value_class
class Repeat(IteratorValue):
    """`itertools.repeat(item, times)`; None repeats for ever."""

    item: Value = part()
    times: int | None
    cls: type

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.item

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.cls, self.item, *([] if self.times is None else [fresh(self.times)]))


@value_class
class Cycle(IteratorValue):
    """`itertools.cycle(items)`; the items are read at once."""

    items: list[Value] = part()
    index: int = field(init=False, default=0)

    def python_type(self) -> type:
        return itertools.cycle

    def next_item(self, tx: Machine) -> Value | None:
        if not self.items:
            return None
        item = self.items[self.index]
        self.index = (self.index + 1) % len(self.items)
        return item

    def reconstruct(self, out: Assembler) -> None:
        out.call(_cycle, *self.items[self.index :], *self.items[: self.index])


def _cycle(*items: Any) -> Iterator[Any]:
    return itertools.cycle(items)


@value_class
class Slice(IteratorValue):
    """`itertools.islice(inner, start, stop, step)`."""

    inner: Value = part()
    #: The position of the next item that it gives.
    wanted: int
    stop: int | None
    step: int
    #: How many items have been taken from `inner`.
    position: int = field(init=False, default=0)

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

    def reconstruct(self, out: Assembler) -> None:
        stop = None if self.stop is None else max(0, self.stop - self.position)
        start = self.wanted - self.position
        out.call(itertools.islice, self.inner, fresh(start), fresh(stop), fresh(self.step))


@value_class
class Accumulate(IteratorValue):
    """`itertools.accumulate(inner, function, initial=…)`; `join` does what the function does."""

    function: Value = part()
    join: Callable[[Machine, Value, Value], Value]
    inner: Value = part()
    #: The one to begin with, then the last one; None before the first item.
    total: Value | None = part()
    #: Whether the total has been given.
    started: bool = field(init=False, default=False)

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


@value_class
class CallableIterator(IteratorValue):
    """`iter(function, sentinel)`."""

    function: Value = part()
    sentinel: Value = part()
    same: Callable[[Machine, Value, Value], bool]
    done: bool = field(init=False, default=False)

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

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        else:
            out.call(iter, self.function, self.sentinel)
