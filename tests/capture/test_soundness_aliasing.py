"""Two objects while capturing that are one in a later call, and the other way round, where the program changes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.capture.changing import compare

Arguments = tuple[Any, ...]


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


class Box:
    def __init__(self, value: Any = 1) -> None:
        self.value = value
        self.items = [1.0]


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1


class MyList(list[Any]):
    pass


def appends(a: Any, b: Any, y: torch.Tensor) -> Any:
    a.append(2.0)
    return y * len(b), len(a)


def assigns(a: Any, b: Any, y: torch.Tensor) -> Any:
    a["k"] = 5.0
    return y * b.get("k", 2.0)


def sets(a: Any, b: Any, y: torch.Tensor) -> Any:
    a.value += 1
    return y * b.value


def sets_item(a: Any, b: Any, y: torch.Tensor) -> Any:
    a.items.append(3.0)
    return y * len(b.items)


def adds(a: Any, b: Any, y: torch.Tensor) -> Any:
    a.add(7)
    return y * len(b)


def through_dict(a: Any, b: Any, y: torch.Tensor) -> Any:
    a.__dict__["value"] = 9
    return y * b.value


def dict_and_object(a: Any, b: Any, y: torch.Tensor) -> Any:
    a["value"] = 9
    return y * b.value


def of(make: Callable[[], Any]) -> tuple[Callable[[], Arguments], Callable[[], Arguments]]:
    """Arguments that are two objects, and one."""

    def one() -> Arguments:
        same = make()
        return same, same

    return lambda: (make(), make()), one


def box_and_its_dict() -> Arguments:
    box = Box()
    return vars(box), box


def shared_items() -> Arguments:
    first, second = Box(), Box()
    second.items = first.items
    return first, second


CASES: list[tuple[Any, tuple[Callable[[], Arguments], ...]]] = [
    (appends, of(lambda: [1.0])),
    (appends, of(lambda: MyList([1.0]))),
    (assigns, of(lambda: {"a": 1.0})),
    (assigns, of(lambda: {"k": 1.0})),
    (assigns, of(lambda: OrderedDict(k=1.0))),
    (sets, of(Box)),
    (sets, of(Slotted)),
    (sets_item, of(Box)),
    (sets_item, (lambda: (Box(), Box()), shared_items)),
    (adds, of(lambda: {1})),
    (through_dict, of(Box)),
    (dict_and_object, (lambda: ({"value": 1}, Box()), box_and_its_dict)),
]


def contents(obj: Any) -> Any:
    """What an object holds."""
    return obj.value if isinstance(obj, Slotted) else getattr(obj, "__dict__", obj)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("fn", "makers"), CASES)
def test_one_or_two(fn: Any, makers: tuple[Callable[[], Arguments], ...], first: int) -> None:
    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    for make in (makers[first], makers[1 - first], makers[first]):
        ours, theirs = make(), make()
        compare(compiled(*ours, x()), fn(*theirs, x()))
        for left, right in zip(ours, theirs, strict=True):
            compare(contents(left), contents(right))


def counter(start: int) -> tuple[Any, Any]:
    """Two functions that share a cell."""
    count = start

    def bump() -> int:
        nonlocal count
        count += 1
        return count

    def read() -> int:
        return count

    return bump, read


def bumps(bump: Any, read: Any, y: torch.Tensor) -> Any:
    bump()
    return y * read()


@pytest.mark.parametrize("first", [0, 1])
def test_one_or_two_cells(first: int) -> None:
    compiled = stator.compile(bumps, backend="eager", options={"strict": True})

    def shared() -> Arguments:
        return counter(1)

    def apart() -> Arguments:
        return counter(1)[0], counter(1)[1]

    makers = (apart, shared)
    for make in (makers[first], makers[1 - first], makers[first], makers[first]):
        ours, theirs = make(), make()
        compare(compiled(*ours, x()), bumps(*theirs, x()))
        compare([ours[0](), ours[1]()], [theirs[0](), theirs[1]()])


def test_cells_of_the_function_and_of_an_argument() -> None:
    def world() -> tuple[Any, Any]:
        count = 1

        def fn(read: Any, y: torch.Tensor) -> Any:
            nonlocal count
            count += 1
            return y * read()

        def read() -> int:
            return count

        return fn, read

    def alike() -> Any:
        return world()[1]

    worlds = [world(), world()]
    compiled = stator.compile(worlds[0][0], backend="eager", options={"strict": True})
    for own in (False, True, False, True):
        ours, theirs = (w[1] if own else alike() for w in worlds)
        compare(compiled(ours, x()), worlds[1][0](theirs, x()))
        compare(worlds[0][1](), worlds[1][1]())
