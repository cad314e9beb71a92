"""Changes of classes and their instances between two calls."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.capture.changing import Calls, Table, check, ids_of, x

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks

here: Any = sys.modules[__name__]
SCALE: Any = 2.0
TABLE: Any = {"a": 1.0, "b": [1.0, 2.0]}
LIST: Any = [1.0, 2.0]
TENSOR = torch.ones(3)


# -- classes and objects ---------------------------------------------------------------------------------


class ResumePoint:
    default = 3.0

    def __init__(self, by: Any) -> None:
        self.by = by

    def value(self) -> Any:
        return self.by

    @property
    def double(self) -> Any:
        return self.by * 2

    @staticmethod
    def fixed() -> float:
        return 2.0

    @classmethod
    def of_class(cls) -> float:
        return cls.default


def uses_point(p: Any, y: torch.Tensor) -> torch.Tensor:
    y = y * p.value() + p.double + p.fixed() + p.of_class() + p.default
    if hasattr(p, "extra"):
        y = y + 100
    if not p:
        y = y - 1000
    return y


def point_case(name: str, change: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        cls = type("Fresh", (ResumePoint,), {})
        point = cls(2.0)
        call(uses_point, point, x())
        change(point, cls)
        call(uses_point, point, x())

    case.__name__ = f"object_{name}"
    getattr(table, kind)(case)


point_case("attribute", lambda p, c: setattr(p, "by", 4.0))
point_case("attribute_deleted", lambda p, c: delattr(p, "by"))
point_case("attribute_added", lambda p, c: setattr(p, "extra", 4.0))
point_case("class_attribute_added", lambda p, c: setattr(c, "extra", 4.0))
point_case("method", lambda p, c: setattr(c, "value", lambda self: 9.0))
point_case("method_on_instance", lambda p, c: setattr(p, "value", lambda: 9.0))
point_case("property", lambda p, c: setattr(c, "double", property(lambda self: 9.0)))
point_case("property_becomes_value", lambda p, c: setattr(c, "double", 7.0))
point_case("attribute_becomes_property", lambda p, c: setattr(c, "by", property(lambda self: 7.0)))
point_case("static_method", lambda p, c: setattr(c, "fixed", staticmethod(lambda: 9.0)))
point_case("class_method", lambda p, c: setattr(c, "of_class", classmethod(lambda cls: 9.0)))
point_case("class_value", lambda p, c: setattr(c, "default", 9.0))
point_case("class_value_shadowed", lambda p, c: setattr(p, "default", 9.0))
point_case("bool_added", lambda p, c: setattr(c, "__bool__", lambda self: False))
point_case("len_added", lambda p, c: setattr(c, "__len__", lambda self: 0))
point_case("getattr_added", lambda p, c: setattr(c, "__getattr__", lambda self, name: 1))
point_case("getattribute_added", lambda p, c: setattr(c, "__getattribute__", lambda self, name: lambda: 1.0))
point_case(
    "class_changed", lambda p, c: setattr(p, "__class__", type("Other", (ResumePoint,), {"fixed": lambda self: 8.0}))
)
point_case("bases_changed", lambda p, c: setattr(c, "__bases__", (type("B", (ResumePoint,), {"default": 5.0}),)))
point_case("dict_replaced", lambda p, c: setattr(p, "__dict__", {"by": 6.0}))
point_case("dict_changed", lambda p, c: vars(p).update(by=6.0))
point_case("unrelated", lambda p, c: setattr(p, "unused", 6.0), "keeps")
point_case("unrelated_on_class", lambda p, c: setattr(c, "unused", 6.0), "keeps")


@keeps
def equal_object(call: Calls) -> None:
    call(uses_point, ResumePoint(2.0), x())
    call(uses_point, ResumePoint(2.0), x())


@changes
def getattr_changed(call: Calls) -> None:
    class Lazy:
        def __getattr__(self, name: str) -> float:
            return 2.0

    def fn(p: Any, y: torch.Tensor) -> torch.Tensor:
        return y * p.anything  # type: ignore[no-any-return]

    lazy = Lazy()
    call(fn, lazy, x())
    Lazy.__getattr__ = lambda self, name: 3.0  # type: ignore[method-assign]
    call(fn, lazy, x())
    lazy.anything = 4.0
    call(fn, lazy, x())


@changes
def descriptor_changed(call: Calls) -> None:
    class Constant:
        def __init__(self, value: float) -> None:
            self.value = value

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.value

    class Owner:
        item = Constant(2.0)

    def fn(p: Any, y: torch.Tensor) -> torch.Tensor:
        return y * p.item  # type: ignore[no-any-return]

    owner = Owner()
    call(fn, owner, x())
    vars(Owner)["item"].value = 3.0
    call(fn, owner, x())
    Constant.__get__ = lambda self, instance, owner: 9.0  # type: ignore[method-assign]
    call(fn, owner, x())


@changes
def slots_changed(call: Calls) -> None:
    class Slotted:
        __slots__ = ("a", "b")

        def __init__(self) -> None:
            self.a = 2.0

    def fn(p: Any, y: torch.Tensor) -> torch.Tensor:
        return y * p.a + (p.b if hasattr(p, "b") else 0.0)  # type: ignore[no-any-return]

    slotted = Slotted()
    call(fn, slotted, x())
    slotted.b = 3.0
    call(fn, slotted, x())
    slotted.a = 3.0
    call(fn, slotted, x())
    del slotted.b
    call(fn, slotted, x())


@changes
def class_argument(call: Calls) -> None:
    def fn(cls: Any, y: torch.Tensor) -> torch.Tensor:
        return cls.of_class() * y + (1 if hasattr(cls, "extra") else 0)  # type: ignore[no-any-return]

    class Sub(ResumePoint):
        default = 4.0

    call(fn, ResumePoint, x())
    call(fn, Sub, x())
    Sub.extra = 1  # type: ignore[attr-defined]
    call(fn, Sub, x())


@changes
def dataclass_field(call: Calls) -> None:
    @dataclass
    class Config:
        by: float = 2.0
        sizes: tuple[int, ...] = (1, 2)

    def fn(c: Any, y: torch.Tensor) -> torch.Tensor:
        return y * c.by + sum(c.sizes)  # type: ignore[no-any-return]

    config = Config()
    call(fn, config, x())
    config.sizes = (1, 2, 3)
    call(fn, config, x())
    call(fn, Config(by=5.0), x())


@changes
def two_objects_equal_by_identity(call: Calls) -> None:
    def fn(a: Any, b: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if a == b else y * 3

    one = ResumePoint(1.0)
    call(fn, one, ResumePoint(1.0), x())
    call(fn, one, one, x())


@changes
def object_in_list(call: Calls) -> None:
    def fn(a: Any, items: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if a in items else y * 3

    one = ResumePoint(1.0)
    call(fn, one, [ResumePoint(1.0)], x())
    call(fn, one, [one], x())


@changes
def object_as_key(call: Calls) -> None:
    def fn(a: Any, items: Any, y: torch.Tensor) -> torch.Tensor:
        return y * items.get(a, 7.0)  # type: ignore[no-any-return]

    one = ResumePoint(1.0)
    call(fn, one, {ResumePoint(1.0): 2.0}, x())
    call(fn, one, {one: 2.0}, x())
    call(fn, one, {one: 3.0}, x())


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_change(kind: str, case: Any) -> None:
    check(kind, case)
