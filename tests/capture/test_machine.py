"""The machine over plain Python programs gives what Python gives, errors included."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from stator.base.errors import GraphBreak
from tests.capture.library import CALLS
from tests.capture.plain import run
from tests.capture.statements import PROGRAMS


def outcome(action: Any, args: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "value", action(*copy.deepcopy(args))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f"{f.__name__}-{i}" for i, (f, _) in enumerate(PROGRAMS)])
def test_program(function: Any, args: tuple[Any, ...]) -> None:
    expected = outcome(function, args)
    assert outcome(lambda *a: run(function, *a), args) == expected


@pytest.mark.parametrize("function", CALLS)
def test_standard_library(function: Any) -> None:
    assert outcome(lambda: run(function), ()) == outcome(function, ())


def test_there_are_many_programs() -> None:
    assert len({function for function, _ in PROGRAMS}) >= 60


def test_location_of_a_break_is_the_users_line() -> None:
    def program() -> None:
        try:
            raise ExceptionGroup("", [ValueError()])
        except* ValueError:  # the refused statement
            pass

    with pytest.raises(GraphBreak) as caught:
        run(program)
    assert caught.value.location == (__file__, program.__code__.co_firstlineno + 3)
    assert "except*" in caught.value.reason


def test_deep_recursion_is_refused() -> None:
    def endless(n: int) -> int:
        return endless(n + 1)

    with pytest.raises(GraphBreak, match="nested calls"):
        run(endless, 0)


def test_dispatch_is_fast() -> None:
    def spin(n: int) -> None:
        a = b = None
        for _ in n:  # type: ignore[attr-defined]
            a, b = b, a

    count = 20_000
    run(spin, range(10))
    best = min(_seconds(lambda: run(spin, range(count))) for _ in range(3))
    assert best / (count * 6) < 3e-6


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
