"""Other literals, other containers, and changes of the process between two calls."""

from __future__ import annotations

import collections
import enum
import logging
import os
import sys
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch

from tests.capture.changing import Calls, Table, check, ids_of, patched, x

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks

here: Any = sys.modules[__name__]
SCALE: Any = 2.0
TABLE: Any = {"a": 1.0, "b": [1.0, 2.0]}
LIST: Any = [1.0, 2.0]
TENSOR = torch.ones(3)


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
def number_of_entries(call: Calls) -> None:
    for kind in (dict, collections.OrderedDict, types.MappingProxyType):

        def fn(named: Any, y: torch.Tensor) -> torch.Tensor:
            return y * len(named) if named else y + 1

        for count in (1, 0, 2):
            call(fn, kind(dict.fromkeys(range(count))), x())


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
