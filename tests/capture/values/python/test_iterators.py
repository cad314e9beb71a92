"""Iterators that leave the graph are the real ones, in the state that they have reached."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning
from tests.capture.values.harness import check, refused

ITEMS = [3, 1, 4, 1, 5, 9, 2, 6]


class Sequence:
    """Iterated by its `__getitem__`."""

    def __getitem__(self, index: int) -> int:
        if index == 6:
            raise IndexError
        return index * 10


class Draw:
    """A function with a memory."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


MAKERS: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([1, 2, 3, 4, 5]),
    "tuple": lambda: iter((1, 2, 3, 4, 5)),
    "range": lambda: iter(range(2, 20, 3)),
    "str": lambda: iter("abcdef"),
    "set": lambda: iter({7}),
    "dict": lambda: iter({"a": 1, "b": 2, "c": 3, "d": 4}),
    "values": lambda: iter({"a": 1, "b": 2, "c": 3, "d": 4}.values()),
    "items": lambda: iter(OrderedDict(a=1, b=2, c=3, d=4).items()),
    "global list": lambda: iter(ITEMS),
    "deque": lambda: iter(deque([1, 2, 3, 4])),
    "getitem": lambda: iter(Sequence()),
    "enumerate": lambda: enumerate(ITEMS, 5),
    "zip": lambda: zip(ITEMS, "abcdef", range(10), strict=False),
    "strict zip": lambda: zip([1, 2, 3, 4], [5, 6, 7, 8], strict=True),
    "map": lambda: map(lambda a, b: a * 10 + b, ITEMS, range(6)),
    "filter": lambda: filter(lambda x: x > 2, ITEMS),
    "filter none": lambda: filter(None, [1, 0, 2, 0, 3, 4]),
    "reversed": lambda: reversed([1, 2, 3, 4, 5]),
    "chain": lambda: itertools.chain([1, 2], "ab", (5, 6)),
    "chain from": lambda: itertools.chain.from_iterable([[1], [2, 3], [], [4, 5]]),
    "count": lambda: itertools.count(3, 2),
    "repeat": lambda: itertools.repeat("x", 5),
    "repeat for ever": lambda: itertools.repeat(7),
    "starmap": lambda: itertools.starmap(pow, [(2, 1), (2, 2), (2, 3), (2, 4)]),
    "filterfalse": lambda: itertools.filterfalse(lambda x: x > 4, ITEMS),
    "islice": lambda: itertools.islice(range(100), 2, 17, 3),
    "open islice": lambda: itertools.islice(ITEMS, 1, None),
    "accumulate": lambda: itertools.accumulate(ITEMS),
    "accumulate initial": lambda: itertools.accumulate(ITEMS, lambda a, b: a - b, initial=100),
    "takewhile": lambda: itertools.takewhile(lambda x: x < 9, ITEMS),
    "dropwhile": lambda: itertools.dropwhile(lambda x: x < 4, ITEMS),
    "cycle": lambda: itertools.cycle([1, 2, 3]),
    "product": lambda: itertools.product("ab", [1, 2, 3]),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3, 4], "ab"),
    "sentinel": lambda: iter(Draw(), 6),
    "nested": lambda: enumerate(zip(itertools.chain([1, 2, 3], ITEMS), map(str, itertools.count()), strict=False)),
}


def rest(iterator: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(iterator, 12))


@pytest.mark.parametrize("taken", [0, 1, 3, 20])
@pytest.mark.parametrize("name", MAKERS)
def test_a_returned_iterator_goes_on(name: str, taken: int) -> None:
    make = MAKERS[name]

    def program(x: torch.Tensor) -> Any:
        iterator = make()
        seen = []
        for _ in range(taken):
            seen.append(next(iterator, None))
        return x + 1, seen, iterator, [iterator]

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    x = torch.randn(3)
    for _ in range(2):
        expected, got = program(x), compiled(x)
        assert torch.equal(got[0], expected[0]) and got[1] == expected[1]
        assert got[3][0] is got[2]
        assert rest(got[2]) == rest(expected[2])


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("name", MAKERS)
def test_a_break_in_the_loop(name: str) -> None:
    make = MAKERS[name]

    def program(x: torch.Tensor) -> Any:
        seen = []
        for number, item in enumerate(make()):
            x = x * 2 + number
            stator.graph_break()
            seen.append(item)
            x = x + 1
            if number == 7:
                break
        return x, seen

    compiled = stator.compile(program, backend="eager")
    x = torch.randn(3)
    for _ in range(2):
        expected, got = program(x), compiled(x)
        assert torch.equal(got[0], expected[0]) and got[1] == expected[1]


def test_the_list_may_change_afterwards() -> None:
    def program(x: torch.Tensor, items: list[int]) -> Any:
        iterator = iter(items)
        next(iterator)
        items.append(7)
        return x.sin(), iterator, items

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for function in (program, compiled):
        items = [1, 2]
        _, iterator, same = function(torch.ones(2), items)
        assert same is items
        items.append(8)
        assert list(iterator) == [2, 7, 8]
        items.append(9)
        assert list(iterator) == []


def test_an_exhausted_one_stays_exhausted() -> None:
    def program(x: torch.Tensor, items: list[int]) -> Any:
        iterator = iter(items)
        total = sum(iterator)
        return x + total, iterator

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    items = [1, 2]
    got, iterator = compiled(torch.ones(2), items)
    items.append(3)
    assert list(iterator) == [] and got[0] == 4


def test_a_changed_dict_is_noticed() -> None:
    def program(x: torch.Tensor, table: dict[str, int]) -> Any:
        iterator = iter(table.items())
        next(iterator)
        return x.cos(), iterator

    table = {"a": 1, "b": 2, "c": 3}
    _, iterator = stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2), table)
    assert next(iterator) == ("b", 2)
    table["d"] = 4
    with pytest.raises(RuntimeError, match="changed size"):
        next(iterator)


def test_tensors_in_iterators() -> None:
    def program(x: torch.Tensor) -> Any:
        parts = iter([x + number for number in range(4)])
        return next(parts), zip(parts, x, strict=False)

    def listed(x: torch.Tensor) -> Any:
        first, pairs = program(x)
        return first, list(pairs)

    check(listed, torch.randn(4))
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    x = torch.randn(4)
    first, pairs = compiled(x)
    for (a, b), (c, d) in zip(pairs, program(x)[1], strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)
    assert torch.equal(first, x)


def test_what_cannot_be_rebuilt_says_so() -> None:
    def program(x: torch.Tensor) -> Any:
        groups = itertools.groupby([1, 1, 2])
        next(groups)
        return x + 1, groups

    assert "groupby" in refused(program, torch.ones(2))


def test_generators() -> None:
    def numbers(count: int, *more: int, step: int = 1, **named: int) -> Iterator[int]:
        for number in range(count):
            yield number * step
        yield from more
        yield from named.values()

    def fresh(x: torch.Tensor) -> Any:
        scale = 3
        return x + 1, numbers(3, 7, 8, step=scale, last=9), (scale * item for item in (1, 2))

    compiled = stator.compile(fresh, backend="eager", fullgraph=True)
    _, first, second = compiled(torch.ones(2))
    assert list(first) == [0, 3, 6, 7, 8, 9] and list(second) == [3, 6]

    def finished(x: torch.Tensor) -> Any:
        generator = numbers(2)
        return x + sum(generator), generator

    assert list(stator.compile(finished, backend="eager", fullgraph=True)(torch.ones(2))[1]) == []

    def suspended(x: torch.Tensor) -> Any:
        generator = numbers(3)
        next(generator)
        return x + 1, generator

    assert "generator" in refused(suspended, torch.ones(2))
    with pytest.warns(FallbackWarning, match="generator"):
        _, generator = stator.compile(suspended, backend="eager")(torch.ones(2))
    assert list(generator) == [1, 2]
