"""Which attributes an object has: `hasattr` and `getattr` with a default, of many kinds of objects and names."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
from typing import Any

import pytest
import torch

import stator
from stator.base import faults

pytestmark = pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    sizes: tuple[int, ...] = (2, 3)
    names: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=lambda: {"a": (1,)})


Point = collections.namedtuple("Point", "x y")
OBJECTS: dict[str, Any] = {
    "tuple": (1, 2),
    "size": torch.ones(2, 3).shape,
    "result": torch.max(torch.ones(2, 3), 0),
    "named tuple": Point(1, 2),
    "list": [1],
    "dict": {"a": 1},
    "set": {1},
    "text": "s",
    "number": 1.5,
    "nothing": None,
    "slice": slice(1, 2),
    "partial": functools.partial(max, 1),
    "generator": torch.Generator(),
    "dtype": torch.float32,
    "module": torch.nn.Linear(2, 2),
    "data": Settings(),
    "member": Colour.RED,
    "enum": Colour,
    "class": Settings,
    "deque": collections.deque([1]),
    "ordered": collections.OrderedDict(a=1),
}
#: What one of them has, and what capture has models of for all.
SPECIAL = "bool call contains dict enter eq getitem hash iter len next setitem array index float add name self wrapped"
NAMES = sorted({"_fields", "_replace", "_asdict", "n_fields", "name", "value", *(f"__{n}__" for n in SPECIAL.split())})


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_has_what_it_has(kind: str) -> None:
    obj, before = OBJECTS[kind], faults.total()

    def program(x: torch.Tensor, obj: Any) -> Any:
        return x + 1, [hasattr(obj, name) for name in NAMES], [getattr(obj, name, 0) == 0 for name in NAMES]

    _, has, absent = stator.compile(program, backend="eager")(torch.ones(2), obj)
    _, wanted, missing = program(torch.ones(2), obj)
    assert [name for name, ours, theirs in zip(NAMES, has, wanted, strict=True) if ours != theirs] == []
    assert absent == missing and faults.total() == before


@pytest.mark.parametrize("function", [dataclasses.asdict, dataclasses.astuple])
def test_records_taken_apart(function: Any) -> None:
    """Which asks of every tuple inside whether it is a named one."""

    def program(x: torch.Tensor, settings: Settings) -> Any:
        return x * settings.rate, function(settings)

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for settings in (Settings(), Settings(0.2, (3,))):
        assert compiled(torch.ones(2), settings)[1] == program(torch.ones(2), settings)[1]
