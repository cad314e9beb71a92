"""Whatever step a function is stopped at, a continuation finishes it as Python would have done."""

from __future__ import annotations

import copy
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from stator.base.errors import Unsupported
from stator.bytecode import continuation
from stator.bytecode.decode import decode
from tests.bytecode.programs import PROGRAMS
from tests.bytecode.reference import State


def outcome(action: Callable[..., Any]) -> tuple[str, Any]:
    try:
        return "value", action()
    except Exception as error:
        return type(error).__name__, type(error.__context__)


def arguments(function: types.FunctionType, args: tuple[Any, ...]) -> list[Any]:
    """The slots that a call starts with."""
    code, fresh = function.__code__, copy.deepcopy(args)
    if not code.co_flags & 4:
        return [*fresh, *(function.__defaults__ or ())[len(fresh) - code.co_argcount :]]
    return [*fresh[: code.co_argcount], fresh[code.co_argcount :]]


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f"{f.__name__}-{i}" for i, (f, _) in enumerate(PROGRAMS)])
def test_every_step(function: types.FunctionType, args: tuple[Any, ...]) -> None:
    expected = outcome(lambda: function(*copy.deepcopy(args)))
    whole = State(function, arguments(function, args))
    reference = outcome(whole.run)
    assert (reference[0] == "value") == (expected[0] == "value"), reference
    assert whole.steps > 5
    first = bool(function.__code__.co_freevars)  # the closure is there from the first instruction on
    for steps in range(first, whole.steps):
        state = State(function, arguments(function, args))
        state.run(steps)
        found = outcome(state.finish)
        place = state.decoded.instructions[state.index]
        assert found[0] == expected[0] and (found == expected or found[0] != "value"), f"from {state.index}: {place}"


def test_the_traceback_names_the_line() -> None:
    def program(x: int) -> float:
        y = x + 1
        return y / (x - x)

    state = State(program, [3])
    state.run(4)
    try:
        state.finish()
    except ZeroDivisionError as error:
        line = error.__traceback__.tb_next.tb_next.tb_lineno  # type: ignore[union-attr]
        assert line == program.__code__.co_firstlineno + 2
        assert error.__traceback__.tb_next.tb_next.tb_frame.f_code.co_name == "program"  # type: ignore[union-attr]
    else:
        raise AssertionError("it did not raise")


def test_what_is_passed_is_what_is_live() -> None:
    def program(a: int, b: int, c: int) -> int:
        d = a + b
        return d * c

    decoded = decode(program.__code__)
    (store,) = [index for index, (name, _) in enumerate(decoded.instructions) if name == "STORE_FAST"]
    point = continuation.point(decoded, store + 1, (), (0, 1, 2, 3))
    assert continuation.parameters(decoded, point) == ("c", "d")
    assert continuation.function(decoded, point, {})(3, 4) == 12


@pytest.mark.usefixtures("few_objects")
def test_references_are_given_back() -> None:
    def program(a: Any, b: Any) -> Any:
        cell = a
        return [(lambda: (cell, item))() for item in b]

    marks = [object() for _ in range(3)]
    before = [sys.getrefcount(mark) for mark in marks]
    for steps in range(25):
        for _ in range(5):
            state = State(program, [marks[0], marks[1:]])
            if not state.run(steps):
                assert [item for _, item in state.finish()] == marks[1:]
            del state
    gc.collect()
    assert [sys.getrefcount(mark) for mark in marks] == before


def test_a_generator_is_refused() -> None:
    def program() -> Any:
        yield 1

    decoded = decode(program.__code__)
    with pytest.raises(Unsupported, match="generator"):
        continuation.assemble(decoded, continuation.point(decoded, 2, (), ()))
