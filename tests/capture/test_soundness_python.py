"""Changes of Python objects between two calls (globals, cells, functions, containers, constants)."""

from __future__ import annotations

import builtins
import enum
import functools
import logging
import os
import sys
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.capture.changing import Calls, Table, check, ids_of

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks

here: Any = sys.modules[__name__]
SCALE: Any = 2.0
TABLE: Any = {"a": 1.0, "b": [1.0, 2.0]}
LIST: Any = [1.0, 2.0]
TENSOR = torch.ones(3)


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


def helper(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
    return y * by + plus


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = vars(owner).get(name, missing) if not isinstance(owner, dict) else owner.get(name, missing)
    store = owner.__setitem__ if isinstance(owner, dict) else functools.partial(setattr, owner)
    drop = owner.__delitem__ if isinstance(owner, dict) else functools.partial(delattr, owner)
    store(name, value)
    try:
        yield
    finally:
        if before is missing:
            drop(name)
        else:
            store(name, before)


# -- globals ---------------------------------------------------------------------------------------------


def uses_global(y: torch.Tensor) -> torch.Tensor:
    return y * SCALE


def uses_table(y: torch.Tensor) -> torch.Tensor:
    return y * TABLE["a"] + sum(TABLE["b"])


def uses_length(y: torch.Tensor) -> torch.Tensor:
    return y * len(LIST) + len(TABLE)


def uses_helper(y: torch.Tensor) -> torch.Tensor:
    return helper(y)


def global_case(name: str, fn: Any, target: str, value: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        call(fn, x())
        with patched(here, target, value):
            call(fn, x())
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


global_case("global_value", uses_global, "SCALE", 3.0)
global_case("global_type_int", uses_global, "SCALE", 2)
global_case("global_type_bool", uses_global, "SCALE", True)
global_case("global_nan", uses_global, "SCALE", float("nan"))
global_case("global_minus_zero", uses_global, "SCALE", -0.0)
global_case("global_tensor", uses_global, "SCALE", torch.tensor(4.0))
global_case("global_dict", uses_table, "TABLE", {"a": 3.0, "b": [0.0]})
global_case("global_dict_subclass", uses_table, "TABLE", defaultdict(lambda: [5.0], a=2.0))
global_case("global_function", uses_helper, "helper", lambda y: y * 30)
global_case("global_shadows_builtin", uses_length, "len", lambda items: 77)
global_case("unrelated_global", uses_global, "UNRELATED", 1, "keeps")
global_case("tensor_global", lambda y: y + TENSOR, "TENSOR", torch.full((3,), 9.0), "keeps")
global_case("tensor_global_dtype", lambda y: y + TENSOR, "TENSOR", torch.ones(3, dtype=torch.float64))


def mutation(name: str, fn: Any, change: Any, undo: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        call(fn, x())
        change()
        try:
            call(fn, x())
        finally:
            undo()
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


mutation("dict_item", uses_table, lambda: TABLE.update(a=5.0), lambda: TABLE.update(a=1.0))
mutation("dict_key_added", uses_length, lambda: TABLE.update(c=5.0), lambda: TABLE.pop("c"))
mutation("dict_key_unrelated", uses_table, lambda: TABLE.update(c=5.0), lambda: TABLE.pop("c"), "keeps")
mutation("list_in_dict", uses_table, lambda: TABLE["b"].append(9.0), lambda: TABLE["b"].pop())
mutation(
    "list_in_dict_item", uses_table, lambda: TABLE["b"].__setitem__(0, 9.0), lambda: TABLE["b"].__setitem__(0, 1.0)
)
mutation("list_length", uses_length, lambda: LIST.append(9.0), lambda: LIST.pop())


@changes
def builtin_patched(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return a_builtin(y)  # type: ignore[name-defined,no-any-return]  # noqa: F821

    with patched(builtins, "a_builtin", lambda y: y * 2):
        call(fn, x())
        with patched(builtins, "a_builtin", lambda y: y * 3):
            call(fn, x())


@changes
def builtin_added(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        try:
            return y * not_a_name  # type: ignore[name-defined,no-any-return]
        except NameError:
            return y

    def calls(y: torch.Tensor) -> torch.Tensor:
        return fn(y) + 1

    call(calls, x())
    with patched(builtins, "not_a_name", 3.0):
        call(calls, x())


@changes
def global_deleted(call: Calls) -> None:
    namespace: dict[str, Any] = {"value": 2.0}
    exec("def fn(y):\n    return y * value", namespace)
    call(namespace["fn"], x())
    del namespace["value"]
    call(namespace["fn"], x())


# -- functions -------------------------------------------------------------------------------------------


def function_case(name: str, change: Any, kind: str = "changes", keyword: bool = False) -> None:
    def case(call: Calls) -> None:
        def inner(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
            return y * by + plus

        def fn(y: torch.Tensor) -> torch.Tensor:
            return inner(y) + 1

        call(fn, x())
        change(inner)
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


def other(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
    return y - by - plus


function_case("code_replaced", lambda f: setattr(f, "__code__", other.__code__))
function_case("default_replaced", lambda f: setattr(f, "__defaults__", (7.0,)))
function_case("defaults_more", lambda f: setattr(f, "__defaults__", (torch.ones(3), 7.0)))
function_case("defaults_none", lambda f: setattr(f, "__defaults__", None))
function_case("kwdefault_replaced", lambda f: f.__kwdefaults__.update(plus=9.0))
function_case("kwdefaults_replaced", lambda f: setattr(f, "__kwdefaults__", {"plus": 8.0}))
function_case("kwdefaults_none", lambda f: setattr(f, "__kwdefaults__", None))
function_case("function_attribute", lambda f: setattr(f, "unused", 1), "keeps")
function_case("function_name", lambda f: setattr(f, "__name__", "other"), "keeps")


@changes
def own_default(call: Calls) -> None:
    def fn(y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return y * by

    call(fn, x())
    fn.__defaults__ = (3.0,)
    call(fn, x())


@changes
def own_code(call: Calls) -> None:
    def fn(y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return y * by

    call(fn, x())
    fn.__code__ = other.__code__.replace(co_name="fn")
    call(fn, x())


@changes
def default_container_changed(call: Calls) -> None:
    def fn(y: torch.Tensor, by: Any = [2.0]) -> torch.Tensor:  # noqa: B006
        return y * by[0]  # type: ignore[no-any-return]

    call(fn, x())
    fn.__defaults__[0][0] = 5.0  # type: ignore[index]
    call(fn, x())


@changes
def cell_changed(call: Calls) -> None:
    by = 2.0

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * by

    call(fn, x())
    by = 4.0
    call(fn, x())


@changes
def cell_of_inner_changed(call: Calls) -> None:
    by: Any = 2.0

    def inner(y: torch.Tensor) -> torch.Tensor:
        return y * by  # type: ignore[no-any-return]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return inner(y) + 1

    call(fn, x())
    by = 4
    call(fn, x())


@changes
def empty_cell_filled(call: Calls) -> None:
    def inner(y: torch.Tensor) -> torch.Tensor:
        try:
            return y * late
        except NameError:
            return y

    def fn(y: torch.Tensor) -> torch.Tensor:
        return inner(y) + 1

    call(fn, x())
    late = 4.0
    call(fn, x())


def scaler(by: float, plus: float = 0.0) -> Any:
    def scale(y: torch.Tensor) -> torch.Tensor:
        return y * by + plus

    return scale


def applies(function: Any, y: torch.Tensor) -> torch.Tensor:
    return function(y) + 1  # type: ignore[no-any-return]


@changes
def closure_argument(call: Calls) -> None:
    call(applies, scaler(2.0), x())
    call(applies, scaler(3.0), x())
    call(applies, helper, x())
    call(applies, torch.relu, x())
    call(applies, torch.sin, x())
    call(applies, functools.partial(helper, by=4.0), x())
    call(applies, functools.partial(helper, by=5.0), x())


@keeps
def closure_argument_made_anew(call: Calls) -> None:
    for _ in range(3):
        call(applies, scaler(2.0), x())


@changes
def closure_argument_identity(call: Calls) -> None:
    def fn(f: Any, g: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if f is g else y * 3

    first = scaler(2.0)
    call(fn, first, first, x())
    call(fn, first, scaler(2.0), x())
    call(fn, scaler(2.0), scaler(2.0), x())


@changes
def closure_argument_name(call: Calls) -> None:
    def fn(f: Any, y: torch.Tensor) -> torch.Tensor:
        return f(y) * len(f.__name__)  # type: ignore[no-any-return]

    first, second = scaler(2.0), scaler(2.0)
    second.__name__ = "another"
    call(fn, first, x())
    call(fn, second, x())


@changes
def partial_replaced(call: Calls) -> None:
    holder: list[Any] = [functools.partial(helper, by=2.0)]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return holder[0](y)  # type: ignore[no-any-return]

    call(fn, x())
    holder[0] = functools.partial(helper, by=2.0, plus=5.0)
    call(fn, x())
    holder[0].keywords["by"] = 9.0
    call(fn, x())


@changes
def cached_function(call: Calls) -> None:
    state = [2.0]

    @functools.lru_cache
    def cached(key: int) -> float:
        return state[0]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * cached(1)

    call(fn, x())
    state[0] = 5.0
    call(fn, x())  # the cache keeps its answer
    cached.cache_clear()
    call(fn, x())


@breaks
def cached_random_tensor(call: Calls) -> None:
    @functools.lru_cache
    def cached(size: int) -> torch.Tensor:
        return torch.randn(size)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * cached(3)

    call(fn, x())
    call(fn, x())
    cached.cache_clear()
    call(fn, x())


# -- classes and objects ---------------------------------------------------------------------------------


class Point:
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
        cls = type("Fresh", (Point,), {})
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
point_case("class_changed", lambda p, c: setattr(p, "__class__", type("Other", (Point,), {"fixed": lambda self: 8.0})))
point_case("bases_changed", lambda p, c: setattr(c, "__bases__", (type("B", (Point,), {"default": 5.0}),)))
point_case("dict_replaced", lambda p, c: setattr(p, "__dict__", {"by": 6.0}))
point_case("dict_changed", lambda p, c: vars(p).update(by=6.0))
point_case("unrelated", lambda p, c: setattr(p, "unused", 6.0), "keeps")
point_case("unrelated_on_class", lambda p, c: setattr(c, "unused", 6.0), "keeps")


@keeps
def equal_object(call: Calls) -> None:
    call(uses_point, Point(2.0), x())
    call(uses_point, Point(2.0), x())


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

    class Sub(Point):
        default = 4.0

    call(fn, Point, x())
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


# -- literals --------------------------------------------------------------------------------------------


def multiplies(y: torch.Tensor, by: Any) -> Any:
    return y * by, by


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    def factor(self) -> float:
        return SCALE * self.value  # type: ignore[no-any-return]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Text(str):
    pass


def literal_case(name: str, first: Any, *rest: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        for value in (first, *rest):
            call(multiplies, x(), value)

    case.__name__ = name
    getattr(table, kind)(case)


literal_case("one_true_float", 1, True, 1.0)
literal_case("zero_minus_zero", 0.0, -0.0)
literal_case("nan_and_number", float("nan"), 1.0)
literal_case("number_and_nan", 1.0, float("nan"))
literal_case("same_nan", float("nan"), float("nan"), kind="keeps")
literal_case("another_nan", float("nan"), float("inf") - float("inf"), kind="keeps")
literal_case("infinities", float("inf"), float("-inf"))
literal_case("int_enum", 1, Level.LOW, Level.HIGH)
literal_case("complex_and_float", 1.0, 1 + 0j)
literal_case("complex_minus_zero", complex(1, 0.0), complex(1, -0.0))
literal_case("number_and_tensor", 2.0, torch.tensor(2.0), torch.tensor(3.0))
literal_case("number_and_none", 2.0, None)
literal_case("big_ints", 10**6, 10**6 + 1)
literal_case("equal_big_int", 10**6 + 7, int(str(10**6 + 7)), kind="keeps")


def describes(y: torch.Tensor, what: Any) -> Any:
    if isinstance(what, Text):
        return y * 7
    if what == "a":
        return y * 2
    if what is None:
        return y * 3
    if what is Color.RED:
        return y * 4
    if isinstance(what, bool):
        return y * 5
    return y * 6


def described_case(name: str, *values: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        for value in values:
            call(describes, x(), value)

    case.__name__ = f"described_{name}"
    getattr(table, kind)(case)


described_case("strings", "a", "b")
described_case("string_subclass", "a", Text("a"))
described_case("equal_strings", "a", "".join(["a"]), kind="keeps")
described_case("none", None, "a", None)
described_case("tensor", None, torch.ones(3))
described_case("enum", Color.RED, Color.GREEN)
described_case("bools", True, False)
described_case("bool_and_int", True, 1)
described_case("tuples", (1, 2), (1, 2, 3), [1, 2])
described_case("dtype", torch.float32, torch.float64)
described_case("slices", slice(1, 2), slice(1, 2.0))


@changes
def enum_method_reads_a_global(call: Calls) -> None:
    def fn(c: Color, y: torch.Tensor) -> torch.Tensor:
        return y * c.factor()

    call(fn, Color.RED, x())
    with patched(here, "SCALE", 11.0):
        call(fn, Color.RED, x())


@changes
def range_parts(call: Calls) -> None:
    def fn(r: range, y: torch.Tensor) -> torch.Tensor:
        return y * r.stop + len(r)

    call(fn, range(0, 3, 2), x())
    call(fn, range(0, 4, 2), x())


@changes
def tuple_item_types(call: Calls) -> None:
    def fn(t: Any, y: torch.Tensor) -> Any:
        return y.to(torch.int64) * t[0], y * t[1][0]

    call(fn, (1, (2.0,)), x())
    call(fn, (True, (2.0,)), x())
    call(fn, (1.0, (2.0,)), x())
    call(fn, (1, (-0.0,)), x())
    call(fn, (1, (0.0,)), x())


# -- containers as arguments -----------------------------------------------------------------------------


def sums(items: Any, y: torch.Tensor) -> torch.Tensor:
    for item in items:
        y = y * 2 + item
    return y


def container_case(name: str, fn: Any, *values: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        for value in values:
            call(fn, value, x())

    case.__name__ = f"container_{name}"
    getattr(table, kind)(case)


container_case("list_content", sums, [1.0, 2.0], [1.0, 3.0])
container_case("list_order", sums, [1.0, 2.0], [2.0, 1.0])
container_case("list_length", sums, [1.0], [1.0, 2.0], [])
container_case("list_and_tuple", sums, [1.0, 2.0], (1.0, 2.0))
container_case("equal_list", sums, [1.0, 2.0], [1.0, 2.0], kind="keeps")
container_case("tensor_list", sums, [torch.ones(3)], [torch.zeros(3)], kind="keeps")
container_case("tensor_list_mixed", sums, [torch.ones(3)], [1.0])
container_case("tensor_list_length", sums, [torch.ones(3)], [torch.ones(3)] * 2, [torch.ones(3), torch.zeros(3)])
container_case("deque", sums, deque([1.0, 2.0]), deque([1.0, 3.0]), deque([1.0]))
container_case("deque_limit", lambda d, y: y * (d.maxlen or 7), deque([1.0], 1), deque([1.0], 2), deque([1.0]))
container_case("set_items", sums, {1, 2}, {1, 3}, {1, 2, 3})
container_case("set_item_type", lambda s, y: [y.int() * item for item in s], {1}, {True}, {1.0})
container_case("set_order", lambda s, y: [y * item for item in s], {8, 16}, {16, 8})
container_case("set_and_frozenset", lambda s, y: y * isinstance(s, frozenset) + len(s), {1}, frozenset({1}))
container_case("equal_set", sums, {1, 2}, {1, 2}, kind="keeps")
container_case("dict_values", lambda d, y: y * d["a"], {"a": 1.0}, {"a": 2.0})
container_case("dict_order", lambda d, y: sums(d, y), {1.0: 0, 2.0: 0}, {2.0: 0, 1.0: 0})
container_case("dict_value_order", lambda d, y: sums(d.values(), y), {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0})
container_case("dict_key_type", lambda d, y: [y.int() * k for k in d], {1: 0}, {True: 0}, {1.0: 0})
container_case("dict_missing", lambda d, y: y * d.get("b", 5.0), {"a": 1.0}, {"a": 1.0, "b": 2.0})
container_case("dict_in", lambda d, y: y * ("b" in d), {"a": 1.0}, {"a": 1.0, "b": 2.0}, {"a": 1.0})
container_case("dict_length", lambda d, y: y * len(d), {"a": 1.0}, {"a": 1.0, "b": 2.0})
container_case("dict_truth", lambda d, y: y if d else -y, {}, {"a": 1.0})
container_case("dict_class", lambda d, y: y * (2 if type(d) is dict else 3), {"a": 1}, OrderedDict(a=1))
container_case("dict_unread_key", lambda d, y: y * d["a"], {"a": 1.0}, {"a": 1.0, "b": 2.0}, kind="keeps")
container_case("defaultdict_factory", lambda d, y: y * d["x"], defaultdict(lambda: 2.0), defaultdict(lambda: 3.0))
container_case("ordered_order", lambda d, y: sums(d, y), OrderedDict({1.0: 0, 2.0: 0}), OrderedDict({2.0: 0, 1.0: 0}))
container_case("nested", lambda d, y: y * d["a"][0]["b"], {"a": [{"b": 1.0}]}, {"a": [{"b": 2.0}]})
container_case("equal_nested", lambda d, y: y * d["a"][0]["b"], {"a": [{"b": 1.0}]}, {"a": [{"b": 1.0}]}, kind="keeps")
container_case(
    "mapping_proxy", lambda d, y: y * d["a"], types.MappingProxyType({"a": 1.0}), types.MappingProxyType({"a": 2.0})
)

Pair = namedtuple("Pair", "first second")
Twin = namedtuple("Twin", "first second")
container_case("named_tuple", lambda p, y: y * p.first, Pair(1.0, 2.0), Pair(2.0, 2.0))
container_case("named_tuple_class", lambda p, y: y * (2 if type(p) is Pair else 3), Pair(1.0, 2.0), Twin(1.0, 2.0))


@changes
def ordered_dict_reordered(call: Calls) -> None:
    items: Any = OrderedDict({1.0: 0, 2.0: 0})

    def fn(y: torch.Tensor) -> torch.Tensor:
        return sums(items, y)

    call(fn, x())
    items.move_to_end(1.0)
    call(fn, x())


@changes
def proxy_content(call: Calls) -> None:
    content = {"a": 1.0}
    proxy = types.MappingProxyType(content)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * proxy["a"] + len(proxy)

    call(fn, x())
    content["a"] = 4.0
    call(fn, x())
    content["b"] = 4.0
    call(fn, x())


@changes
def two_lists_or_one(call: Calls) -> None:
    def fn(a: Any, b: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if a is b else y * 3

    one = [1.0]
    call(fn, one, [1.0], x())
    call(fn, one, one, x())
    call(fn, [1.0], [1.0], x())


@changes
def two_objects_equal_by_identity(call: Calls) -> None:
    def fn(a: Any, b: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if a == b else y * 3

    one = Point(1.0)
    call(fn, one, Point(1.0), x())
    call(fn, one, one, x())


@changes
def object_in_list(call: Calls) -> None:
    def fn(a: Any, items: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if a in items else y * 3

    one = Point(1.0)
    call(fn, one, [Point(1.0)], x())
    call(fn, one, [one], x())


@changes
def object_as_key(call: Calls) -> None:
    def fn(a: Any, items: Any, y: torch.Tensor) -> torch.Tensor:
        return y * items.get(a, 7.0)  # type: ignore[no-any-return]

    one = Point(1.0)
    call(fn, one, {Point(1.0): 2.0}, x())
    call(fn, one, {one: 2.0}, x())
    call(fn, one, {one: 3.0}, x())


# -- the process -----------------------------------------------------------------------------------------


@changes
def environment(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * float(os.environ.get("STATOR_TEST_SCALE", "2")) + ("STATOR_TEST_SCALE" in os.environ)

    call(fn, x())
    os.environ["STATOR_TEST_SCALE"] = "3"
    try:
        call(fn, x())
    finally:
        del os.environ["STATOR_TEST_SCALE"]


@changes
def environment_by_getenv(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * float(os.getenv("STATOR_TEST_SCALE", "2"))

    call(fn, x())
    os.environ["STATOR_TEST_SCALE"] = "3"
    try:
        call(fn, x())
    finally:
        del os.environ["STATOR_TEST_SCALE"]


@changes
def file_exists(call: Calls) -> None:
    path = f"/tmp/stator-soundness-{os.getpid()}"

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * 2 if os.path.exists(path) else y * 3

    call(fn, x())
    with open(path, "w"):
        pass
    try:
        call(fn, x())
    finally:
        os.unlink(path)


@changes
def module_attribute_added(call: Calls) -> None:
    module = types.ModuleType("made")

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * 2 if hasattr(module, "flag") else y * 3

    call(fn, x())
    module.flag = 1  # type: ignore[attr-defined]
    call(fn, x())


@changes
def log_level(call: Calls) -> None:
    logger = logging.getLogger("stator.test.soundness")
    logger.setLevel(logging.ERROR)
    seen: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    def fn(y: torch.Tensor) -> torch.Tensor:
        logger.info("called")
        return y * 2

    logger.addHandler(Keeps())
    call(fn, x())
    assert seen == []
    logger.setLevel(logging.INFO)
    call(fn, x())
    assert seen == ["called", "called"]


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_change(kind: str, case: Any) -> None:
    check(kind, case)
