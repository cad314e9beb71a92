"""Changes of containers whose classes read them in a way of their own: what they hold is guarded, not what they say."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
import torch

import stator
from tests.capture.changing import Calls, Table, check, ids_of, x

table = Table()
changes = table.changes


class Making(OrderedDict[str, Any]):
    """Gives an instance of the class that it holds."""

    def __getitem__(self, name: str) -> Any:
        content = super().__getitem__(name)
        cls, given = content if isinstance(content, tuple) else (content, {})
        return cls(**given)


class Odd(dict[Any, Any]):
    """Says something else than it holds."""

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self, key) * 10

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 77

    def keys(self) -> Any:
        return []

    def items(self) -> Any:
        return []


class Backwards(list[Any]):
    """Counts from the end."""

    def __getitem__(self, index: Any) -> Any:
        return list.__getitem__(self, -1 - index)

    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Any:
        return iter(())


class Pair(NamedTuple):
    """Equal to whatever has the same first item."""

    first: Any
    second: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and bool(self.first == other.first)

    def __hash__(self) -> int:
        return 1


class Scale:
    def __init__(self, by: float = 2.0) -> None:
        self.by = by


def makes(table: Any, y: torch.Tensor) -> torch.Tensor:
    return y * table["scale"].by


def subscripts(table: Any, y: torch.Tensor) -> torch.Tensor:
    return y * table["a"] + len(table) + len(list(table))


def stored(table: Any, y: torch.Tensor) -> Any:
    return y * dict.__getitem__(table, "a") + dict.__len__(table), list(dict.keys(table))


def of_list(items: Any, y: torch.Tensor) -> Any:
    return y * items[0] + len(items) + len(list(items)), list.__len__(items)


def case_of(name: str, fn: Any, make: Any, change: Any) -> None:
    """Call, change the container, call."""

    def case(call: Calls) -> None:
        target = make()
        call(fn, target, x())
        change(target)
        call(fn, target, x())
        call(fn, target, x())

    case.__name__ = name
    changes(case)


KEY = object()


def odd() -> Odd:
    return Odd(a=1.5, b=torch.ones(3))


case_of(
    "making_other_class",
    makes,
    lambda: Making(scale=Scale),
    lambda t: OrderedDict.__setitem__(t, "scale", (Scale, {"by": 5.0})),
)
case_of("odd_value", subscripts, odd, lambda t: dict.__setitem__(t, "a", 4.0))
case_of("odd_tensor", lambda t, y: t["b"] + y, odd, lambda t: dict.__setitem__(t, "b", torch.ones(1)))
case_of("odd_method_patched", subscripts, odd, lambda t: setattr(type(t), "__getitem__", type(t).__getitem__))
case_of("odd_stored_length", stored, odd, lambda t: dict.__setitem__(t, "c", 4.0))
case_of("odd_stored_order", stored, odd, lambda t: dict.__setitem__(t, "a", dict.pop(t, "a")))
case_of("odd_becomes_plain", subscripts, odd, lambda t: setattr(t, "__class__", type("Even", (dict,), {})))
case_of("backwards_value", of_list, lambda: Backwards([1.5, 2.5]), lambda t: list.__setitem__(t, 1, 7.5))
case_of("backwards_length", of_list, lambda: Backwards([1.5, 2.5]), lambda t: list.append(t, 7.5))
case_of("backwards_tensor", of_list, lambda: Backwards([1.5, torch.ones(3)]), lambda t: t.append(torch.ones(1)))


def object_key(table: Any, y: torch.Tensor) -> Any:
    return y * table[KEY] + sum(len(str(type(key))) for key in dict.keys(table))


case_of("odd_object_key", object_key, lambda: Odd({KEY: 2.0}), lambda t: dict.__setitem__(t, KEY, 3.0))


def read_later(table: Any, y: torch.Tensor) -> Any:
    return y * table.get("a") + table["b"]


class Doubling(dict[Any, Any]):
    """A fresh subclass of it is patched in each case."""


def case_patched(call: Calls) -> None:
    cls: Any = type("Fresh", (Doubling,), {})
    target = cls(a=torch.full((3,), 2.0), b=1.0)
    call(read_later, target, x())
    cls.__getitem__ = lambda self, key: dict.__getitem__(self, key) * 2
    call(read_later, target, x())
    cls.__len__ = lambda self: 5
    call(read_later, target, x())


changes(case_patched)


@changes
def factory_given_later(call: Calls) -> None:
    target: Any = defaultdict(None, a=1.0)

    def fn(table: Any, y: torch.Tensor) -> Any:
        try:
            return y + table["b"]
        except KeyError:
            return y * table["a"]

    call(fn, target, x())
    target.default_factory = float
    call(fn, target, x())


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_case(kind: str, case: Any) -> None:
    check(kind, case)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_tuples_that_are_more_than_their_items() -> None:
    """Equality or attributes of their own are the user's code: not captured, and right."""

    class Named(tuple[Any, ...]):
        name = 1.0

    named = Named((1.0, 2.0))
    named.name = 4.0

    def fn(y: torch.Tensor) -> Any:
        made = Pair(1.0, y)
        return y * named.name, made == Pair(1.0, None), Pair(2.0, y) == made

    tensor, *rest = stator.compile(fn, backend="eager", options={"strict": True})(x())
    assert torch.equal(tensor, x() * 4.0)
    assert rest == [True, False]
