"""`itertools.tee`, `groupby` and `compress`: iterators that share what they have taken from another.

As lazy as Python's. A suspended one cannot be rebuilt, so it may not outlive the graph.
Neighbours: `iterators.py` (those that can), `builtin_types.py`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.iterators import IteratorValue
from stator.capture.values.registry import handles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


@value_class
class Steps(IteratorValue):
    """What a Python generator over values gives."""

    steps: Iterator[Value]
    cls: type

    def python_type(self) -> type:
        return self.cls

    def next_item(self, tx: Machine) -> Value | None:
        return next(self.steps, None)

    def reconstruct(self, out: Assembler) -> None:
        raise GraphBreak(f"an itertools.{self.cls.__name__} that has been started cannot be used outside of the graph")


@handles(itertools.compress)
def call_compress(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`compress(data, selectors)`."""
    data, selectors = [{**dict(zip(("data", "selectors"), args, strict=False)), **kwargs}[name].iterate(tx)
                       for name in ("data", "selectors")]  # fmt: skip

    def steps() -> Iterator[Value]:
        while (item := data.next_item(tx)) is not None and (flag := selectors.next_item(tx)) is not None:
            if flag.truth(tx):
                yield item

    return Steps(steps(), itertools.compress)


@handles(itertools.tee)
def call_tee(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`tee(iterable, n)`: each of the iterators takes what another has taken already, or asks for one more."""
    inner = args[0].iterate(tx)
    taken: list[Value] = []

    def steps() -> Iterator[Value]:
        position = 0
        while True:
            if position == len(taken):
                item = inner.next_item(tx)
                if item is None:
                    return
                taken.append(item)
            yield taken[position]
            position += 1

    count = args[1].constant() if len(args) > 1 else 2
    return TupleValue([Steps(steps(), type(itertools.tee(())[0])) for _ in range(count)])


@handles(itertools.groupby)
def call_groupby(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`groupby(iterable, key)`: a group ends where the key changes, or when the next one is asked for."""
    inner = args[0].iterate(tx)
    function = args[1] if len(args) > 1 else kwargs.get("key", NONE)
    waiting: list[tuple[Value, Value]] = []

    def ahead() -> tuple[Value, Value] | None:
        if not waiting:
            item = inner.next_item(tx)
            if item is None:
                return None
            waiting.append((item if function.is_none() else function.call(tx, (item,), {}), item))
        return waiting[0]

    def group(key: Value, number: int) -> Iterator[Value]:
        while number == started[0] and (found := ahead()) is not None and operators.equal(tx, found[0], key):
            yield waiting.pop()[1]

    started = [0]

    def groups() -> Iterator[Value]:
        while (found := ahead()) is not None:
            started[0] += 1
            key, number = found[0], started[0]
            yield TupleValue([key, Steps(group(key, number), itertools.groupby)])
            while (found := ahead()) is not None and operators.equal(tx, found[0], key):
                waiting.pop()

    return Steps(groups(), itertools.groupby)
