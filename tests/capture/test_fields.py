"""Fields of value classes: slots, constructor, parts and text follow from one declaration."""

from __future__ import annotations

import gc
import weakref
from dataclasses import field

import pytest

from stator.capture.fields import part, value_class
from stator.capture.source import LocalSource
from stator.capture.value import Value


@value_class
class Named(Value):
    name: str

    def python_type(self) -> type:
        return str

    @property
    def described(self) -> str:
        return f"named {self.name}"

    @classmethod
    def of(cls, name: str) -> Named:
        return cls(name)


@value_class
class Pair(Named):
    first: Value | None = part(default=None)
    rest: list[Value] = part(default_factory=list)
    others: dict[str, Value] = part(init=False, default_factory=dict)
    count: int = field(init=False, default=3)

    def __post_init__(self) -> None:
        self.count += len(self.rest)

    def python_type(self) -> type:
        return super().python_type()

    @property
    def described(self) -> str:
        return f"pair {super().described}"

    @classmethod
    def of(cls, name: str) -> Pair:
        made = super().of(name)
        assert isinstance(made, Pair)
        return made


@value_class
class OnlyProperty(Named):
    @property
    def described(self) -> str:
        return f"only {super().described}"


def test_the_constructor_takes_the_fields_in_order_and_the_source_by_name() -> None:
    source = LocalSource("x")
    pair = Pair("a", Value(), [Value()], source=source)
    assert (pair.name, pair.source, pair.count) == ("a", source, 4)
    with pytest.raises(TypeError):
        Pair("a", None, [], source)  # type: ignore[misc, arg-type]


def test_super_means_the_class_that_was_made() -> None:
    pair = Pair.of("a")
    assert pair.python_type() is str and pair.described == "pair named a"
    assert OnlyProperty("b").described == "only named b"


def test_parts_are_what_the_marked_fields_hold_in_order() -> None:
    first, second, third = Value(), Value(), Value()
    pair = Pair("a", first, [second])
    pair.others["k"] = third
    assert list(pair.children()) == [first, second, third]
    assert list(Pair("b").children()) == list(Named("c").children()) == []
    assert Pair("d").rest is not Pair("e").rest


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Pair("a").frist = None  # type: ignore[attr-defined]
    assert not hasattr(Pair("a"), "__dict__")


@pytest.mark.usefixtures("few_objects")
def test_values_are_told_apart_by_identity_and_go_when_nobody_holds_them() -> None:
    one, other = Named("a"), Named("a")
    assert one != other and len({one, other}) == 2
    seen = weakref.ref(one)
    del one
    gc.collect()
    assert seen() is None


def test_the_text_names_the_fields_and_runs_nothing_of_a_programs() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("somebody asked")

    assert repr(Pair("a", Named("b"))) == "Pair(name='a', first=Named, rest=list, others=dict, count=3)"
    assert repr(Named(Loud())) == "Named(name=Loud)"  # type: ignore[arg-type]
