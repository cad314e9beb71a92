"""Classes of users that the cases take: subclasses of everything that can be one, named tuples, enums, odd objects."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple


class Pair(NamedTuple):
    """Its fields have the names of methods on purpose."""

    first: Any
    count: Any = 2


class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    ALIAS = 1  # noqa: PIE796


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mask(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Stack(list[Any]):
    """A list with an attribute and a method."""

    label = "stack"

    def top(self) -> Any:
        return self[-1]


class Row(tuple[Any, ...]):
    def total(self) -> int:
        return len(self)


class Table(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        return f"no {key}"


class Bunch(set[Any]):
    pass


class Frozen(frozenset[Any]):
    pass


class Line(deque[Any]):
    pass


class Ordered(OrderedDict[Any, Any]):
    pass


class Groups(defaultdict[Any, Any]):
    pass


class Tally(Counter[Any]):
    pass


class Text(str):
    def shout(self) -> str:
        return self.upper() + "!"


class Data(bytes):
    pass


class Buffer(bytearray):
    pass


class Whole(int):
    def next(self) -> int:
        return self + 1


class Real(float):
    pass


class Angle(complex):
    pass


class At:
    """Only an index."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Same:
    """Equal to all that has its number, ordered by it, and hashed by it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> Any:
        if isinstance(other, int):
            return self.number == other
        return self.number == other.number if isinstance(other, Same) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.number < other.number if isinstance(other, Same) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"Same({self.number})"

    def __radd__(self, other: Any) -> Any:
        return ("radd", other)

    def __rmul__(self, other: Any) -> Any:
        return ("rmul", other)

    def __ror__(self, other: Any) -> Any:
        return ("ror", other)


class Keyed:
    """A mapping by `keys` and `[]` alone."""

    def keys(self) -> list[str]:
        return ["k", "a"]

    def __getitem__(self, key: str) -> str:
        if key not in ("k", "a"):
            raise KeyError(key)
        return key * 2
