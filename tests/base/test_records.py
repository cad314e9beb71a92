"""`dataclass` of records.py gives what the standard library's gives."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from stator.base import records

WAYS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False},
]


def pair(decorator: Callable[..., Any], **how: bool) -> tuple[type, type]:
    """A record and one that adds to it."""

    @decorator(**how)
    class First:
        """A record."""

        number: int
        name: str = "a"
        many: list[int] = field(default_factory=list, compare=False)
        hidden: int = field(default=3, repr=False)
        made: float = field(init=False, default=0.5)

    @decorator(**how)
    class Second(First):
        """One more."""

        other: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return "mine"

    return First, Second


def told(call: Callable[[], Any]) -> Any:
    """What a call gives, or raises."""
    try:
        return call()
    except (TypeError, AttributeError, FrozenInstanceError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_as_the_standard_library(how: dict[str, bool]) -> None:
    seen = []
    for decorator in (dataclasses.dataclass, records.dataclass):
        first, second = pair(decorator, **how)
        a, b, c = first(1), first(1, many=[2]), second(1, other=(2,))
        equal = [a == b, a != b, a == c, second(1, other=(2,)) == c]
        if "eq" not in how:
            equal += [
                told(lambda a=a, b=b: hash(a) == hash(b)),
                told(lambda c=c, second=second: {c: 1}[second(1, other=(2,))]),
            ]
        facts = [repr(a), repr(c), equal, dataclasses.asdict(c), dataclasses.replace(c, number=5).number]
        facts += [told(lambda first=first: first()), told(lambda first=first: first(1, unknown=2))]
        facts += [told(lambda a=a: setattr(a, "number", 2)), a.number, told(lambda a=a: delattr(a, "name"))]
        facts += [first.__match_args__, second.__match_args__]
        if "slots" not in how:  # where the standard library's `super()` means the class before that with slots
            facts.append(told(lambda a=a: setattr(a, "unknown", 2)))
        facts += [
            list(inspect.signature(second).parameters),
            copy.copy(c).other,
            copy.deepcopy(c).many,
            hasattr(a, "__dict__"),
        ]
        seen.append(facts)
    assert seen[0] == seen[1]


@records.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickles find it."""

    number: int
    half: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "half", self.number / 2)


def test_frozen_records_come_back_from_bytes() -> None:
    again = pickle.loads(pickle.dumps(Kept(3)))
    assert again == Kept(3) and again.half == 1.5


def test_a_field_that_compares_oddly_is_the_same_as_itself() -> None:
    """As in a tuple, what is the same object is equal."""

    @records.dataclass(frozen=True)
    class One:
        """A field."""

        number: float

    nan = float("nan")
    assert One(nan) == One(nan)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(AssertionError):

        @records.dataclass
        class Named:
            """By name alone."""

            number: int = field(kw_only=True)
