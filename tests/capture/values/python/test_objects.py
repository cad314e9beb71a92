"""Users' classes: attribute lookup, making instances, changing them, special methods."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
from collections import OrderedDict
from typing import Any

import torch

from tests.capture.values.harness import capture, check, refused


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Base(abc.ABC):
    shared = 10
    registry: dict[str, int] = {"k": 1}  # noqa: RUF012

    def __init__(self, value: Any) -> None:
        self.value = value

    @abc.abstractmethod
    def size(self) -> int: ...

    @property
    def twice(self) -> Any:
        return self.value * 2

    @twice.setter
    def twice(self, new: Any) -> None:
        self.value = new / 2

    @classmethod
    def make(cls, *args: Any) -> Any:
        return cls(*args)

    @staticmethod
    def helper(a: Any) -> Any:
        return a + 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("dynamic_"):
            return name.removeprefix("dynamic_")
        raise AttributeError(name)


class Child(Base):
    def __init__(self, value: Any, extra: int = 0) -> None:
        super().__init__(value)
        self.extra = extra

    def size(self) -> int:
        return self.shared + self.extra

    @functools.cached_property
    def costly(self) -> Any:
        return self.value + 100

    def __add__(self, other: Any) -> Any:
        return Child(self.value + (other.value if isinstance(other, Child) else other))

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Child) and self.extra == other.extra

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if index >= 3:
            raise IndexError(index)
        return self.value * index

    def __call__(self, t: Any) -> Any:
        return t * self.extra

    def __contains__(self, item: Any) -> bool:
        return item == "in"

    def __bool__(self) -> bool:
        return self.extra > 0


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


@dataclasses.dataclass
class Record:
    a: Any
    b: int = 3
    c: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.b += 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any


class Output(OrderedDict[str, Any]):
    """A dict whose items are attributes too, as model outputs are."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def first(self) -> Any:
        return next(iter(self.values()))


class Logged:
    def __init__(self) -> None:
        object.__setattr__(self, "log", [])

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(name)
        super().__setattr__(name, value)

    def __getattribute__(self, name: str) -> Any:
        if name == "alias":
            name = "real"
        return super().__getattribute__(name)


class Manager:
    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> Manager:
        self.depth += 1
        return self

    def __exit__(self, *exc: Any) -> bool:
        self.depth -= 1
        return exc[0] is ValueError


def x() -> torch.Tensor:
    return torch.arange(4.0)


def test_reading() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        return (
            o.value + t, o.twice, o.size(), o.shared, o.helper(t), o.dynamic_name, type(o).__name__,
            o.__class__ is Child,
            o.registry["k"], Child.shared, Base.helper(1), hasattr(o, "nope"), getattr(o, "nope", 5), isinstance(o,
            Base),
            o.__dict__["extra"],
        )  # fmt: skip

    check(f, Child(x(), 4), x())


def test_shadowing_is_guarded() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        return t * o.shared + o.size()

    guards = capture(f, Child(1), x()).guards
    assert any("'shared' not in" in guard for guard in guards)
    assert any("'size' not in" in guard for guard in guards)


def test_writing() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        o.value = t * 2
        o.twice = t * 6
        o.new = [t]
        o.extra += 1
        del o.gone
        return o.value, o.costly

    o = Child(x(), 4)
    o.gone = 1
    check(f, o, x())


def test_special_methods() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        total = 0
        for item in o:
            total = total + item
        chosen = "yes" if o else "no"
        made = o + Child(t, 1)
        return total, chosen, made.value, (1 + o).value, o == Child(0, 4), o != 3, len(o), o[1], o(t), "in" in o, 1 in o

    check(f, Child(x(), 4), x())


def test_making() -> None:
    def f(t: torch.Tensor) -> Any:
        child = Child.make(t, 2)
        slotted = Slotted(child)
        slotted.b = 5
        record = Record(t)
        record.c.append(record.b)
        return child, slotted.a.extra, slotted.b, record, Frozen(t), dataclasses.replace(Frozen(1), a=t).a

    captured = capture(f, x())
    child, extra, b, record, frozen, replaced = captured.run(x())
    assert type(child) is Child and child.extra == extra == 2 and b == 5
    assert record.b == 4 and record.c == [4]
    torch.testing.assert_close(frozen.a, x())
    torch.testing.assert_close(replaced, x())


def test_abstract_classes_cannot_be_made() -> None:
    def f(t: torch.Tensor) -> Any:
        try:
            Base(t)  # type: ignore[abstract]
        except TypeError:
            return t + 1

    check(f, x())


def test_subclass_of_dict() -> None:
    def f(t: torch.Tensor) -> Any:
        out = Output(a=t)
        out["loss"] = t.sum()
        return out, out.loss, out.first(), list(out), "a" in out, len(out), {**out}

    check(f, x())


def test_hooks_of_attributes() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        o.real = t * 2
        return o.alias + 1

    check(f, Logged(), x())


def test_with_statement() -> None:
    def f(m: Any, t: torch.Tensor) -> Any:
        with m as inner:
            depth = inner.depth
            raise ValueError
        return depth, t + m.depth

    check(f, Manager(), x())


def test_enums() -> None:
    def f(t: torch.Tensor, colour: Colour) -> Any:
        return (
            colour is Colour.RED,
            Colour("b"),
            colour.name,
            Level.HIGH > Level.LOW,
            t * Level.HIGH,
            [c.value for c in Colour],
        )

    check(f, x(), Colour.RED)


def test_objects_are_one_value() -> None:
    def f(a: Any, b: Any, t: torch.Tensor) -> Any:
        a.value = t + 1
        return b.value * 2, a is b

    shared = Child(1)
    captured = capture(f, shared, shared, x())
    got, same = captured.run(shared, shared, x())
    assert same
    torch.testing.assert_close(got, (x() + 1) * 2)


def test_identity_of_a_made_object() -> None:
    def f(t: torch.Tensor) -> Any:
        node = Record(t)
        node.a = node
        return [node, node]

    a, b = capture(lambda t: (f(t), t + 1), x()).run(x())[0]
    assert a is b is a.a


def test_attribute_errors_are_the_programs() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        try:
            return o.absent
        except AttributeError as error:
            return str(error), t + 1

    check(f, Child(1), x())


def test_c_objects_are_refused() -> None:
    def f(o: Any, t: torch.Tensor) -> Any:
        return o.send(None), t + 1

    assert "not supported" in refused(f, (i for i in [1]), x())


def test_keys() -> None:
    def by_identity(a: Any, t: torch.Tensor) -> Any:
        table = {a: 1, Colour.RED: 2, (1, "b"): 3}
        return table[a], table[Colour.RED], table[1, "b"], t in {t: 1}, t + 1

    def by_value(a: Any, t: torch.Tensor) -> Any:
        return {Frozen(1): t}[Frozen(1)] + 1

    check(by_identity, Manager(), x())
    check(by_value, None, x())


class Emptied:
    __slots__ = ("extra", "scale")

    def __init__(self, scale: float) -> None:
        self.scale = scale


def test_slots_are_emptied_and_filled() -> None:
    def change(t: torch.Tensor, thing: Emptied) -> tuple[torch.Tensor, bool]:
        result = t * thing.scale
        thing.extra = 1
        del thing.scale, thing.extra
        return result, hasattr(thing, "scale")

    thing, other = Emptied(2.0), Emptied(2.0)
    captured = capture(change, torch.ones(2), thing)
    assert captured.run(torch.ones(2), other)[1] is False
    assert not hasattr(other, "scale") and not hasattr(other, "extra")
    assert thing.scale == 2.0

    def twice(t: torch.Tensor, thing: Emptied) -> torch.Tensor:
        del thing.scale
        try:
            del thing.scale
        except AttributeError:
            return t + 1
        return t

    assert capture(twice, torch.ones(2), thing).run(torch.ones(2), thing).tolist() == [2.0, 2.0]


def test_notes_of_exceptions() -> None:
    def noted(t: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
        try:
            raise ValueError("x")
        except ValueError as error:
            before = hasattr(error, "__notes__")
            error.add_note("first")
            error.add_note("second")
            return t + before, error.__notes__

    check(noted, torch.ones(2))
