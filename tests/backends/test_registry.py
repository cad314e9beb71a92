"""The table of backends: names, callables, entry points, and which options reach whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stator.backends import registry
from stator.backends.registry import Backend, enter, list_backends, lookup, register_backend
from stator.base.errors import InvalidArgument, UnknownBackend, UnknownOption
from stator.base.options import Options


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_BACKENDS", {})
    yield


def plain(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda: ("plain", gm, example_inputs)


def asking(gm: Any, example_inputs: list[Any], options: Any = None) -> Callable[..., Any]:
    return lambda: ("asking", gm, options)


def test_both_forms_of_the_decorator_give_the_function_back() -> None:
    assert register_backend(plain) is plain
    assert register_backend(name="other")(asking) is asking
    assert {"plain", "other"} <= set(list_backends())
    assert lookup("plain").compile is plain and lookup("other").compile is asking


def test_a_callable_needs_no_name() -> None:
    found = lookup(plain)
    assert found.name == "plain" and found.compile is plain
    assert "plain" not in list_backends()


def test_unknown_names_are_refused_with_the_nearest() -> None:
    register_backend(plain, name="inductor")
    with pytest.raises(UnknownBackend, match="did you mean 'inductor'"):
        lookup("inducter")
    with pytest.raises(InvalidArgument, match="not 3"):
        lookup(3)  # type: ignore[arg-type]


def test_a_name_is_not_taken_twice() -> None:
    register_backend(plain)
    register_backend(plain)
    with pytest.raises(InvalidArgument, match="already"):
        register_backend(asking, name="plain")


def test_own_backends_get_the_options_record() -> None:
    options = Options(threads=3)
    own = Backend("own", asking, own=True)
    assert own.bind(options, {})("gm", [])() == ("asking", "gm", options)
    with pytest.raises(UnknownOption, match="level"):
        own.bind(options, {"level": 3})


def test_others_get_what_is_theirs_if_they_ask_for_it() -> None:
    assert Backend("b", asking).bind(Options(), {"level": 3})("gm", [])() == ("asking", "gm", {"level": 3})
    assert Backend("b", asking).bind(Options(), {})("gm", [])() == ("asking", "gm", None)
    with pytest.raises(UnknownOption, match="level"):
        Backend("b", plain).bind(Options(), {"level": 3})


def test_installed_packages_offer_backends_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "theirs"
        loads = 0

        def load(self) -> Callable[..., Any]:
            Point.loads += 1
            return plain

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point()] if group == "stator_backends" else [])
    assert "theirs" in list_backends() and Point.loads == 0
    assert lookup("theirs").compile is plain and lookup("theirs").compile is plain
    assert Point.loads == 1


def test_entries_are_plain_records() -> None:
    enter(Backend("one", plain))
    assert lookup("one") == Backend("one", plain, own=False)
    assert not Backend("builtin", print).takes_options
