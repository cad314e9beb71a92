"""Entries that are a graph and no more run without their frame, and do what their code does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator._native import Dispatcher, GuardTree, RunOriginal, Straight
from stator.capture import rewrite

X, Y = torch.ones(3), torch.full((3,), 2.0)


def original(x: Any, *args: Any, y: Any = 7, **kwargs: Any) -> Any:
    return "original"


def dispatcher(straight: Straight, entry: Callable[..., Any] = lambda *args, **kwargs: "entry") -> Dispatcher:
    made = Dispatcher(original, lambda args, kwargs: "fallback")
    made.add(GuardTree((), (), ()), entry, False, straight)
    return made


def given(*args: Any) -> tuple[Any, ...]:
    return args


def test_it_takes_parameters_and_items() -> None:
    call = dispatcher(Straight(given, None, ((0, -1), (1, -1), (2, 1)), 3, -1))
    assert call(1, 2, 3) == (1, 7, 3)
    assert call(1, 2, 3, 4, y=5, z=6) == (1, 5, 3)
    with pytest.raises(SystemError, match="guards"):
        call(1, 2)


@pytest.mark.parametrize("result, expected", [(-1, (3, 7)), (0, 3), (1, 7)])
def test_it_gives_one_result_or_all(result: int, expected: object) -> None:
    assert dispatcher(Straight(given, None, ((0, -1), (1, -1)), 2, result))(3) == expected


def test_a_graph_gives_what_it_has() -> None:
    for graph in (lambda x: (x, x), lambda x: [x]):
        with pytest.raises(SystemError, match="results"):
            dispatcher(Straight(graph, None, ((0, -1),), 1, 0))(3)  # type: ignore[arg-type]


def test_an_error_is_recovered_from() -> None:
    seen: list[Any] = []

    def fails(*args: Any) -> Any:
        raise ValueError("no")

    def recover(error: BaseException, *args: Any) -> None:
        seen.append((error, args))
        raise RunOriginal

    assert dispatcher(Straight(fails, recover, ((0, -1), (1, -1)), 1, 0))(3) == "original"
    ((error, args),) = seen
    assert str(error) == "no" and args == (3, 7) and error.__traceback__ is not None
    with pytest.raises(ValueError, match="no"):
        dispatcher(Straight(fails, None, (), 1, 0))(3)
    with pytest.raises(SystemError, match="raise"):
        dispatcher(Straight(fails, lambda error: None, (), 1, 0))(3)


def test_who_profiles_or_traces_sees_the_entry() -> None:
    call = dispatcher(Straight(given, None, ((0, -1),), 1, 0))
    for watch in (sys.setprofile, sys.settrace):
        watch(lambda *_: None)
        try:
            assert call(3) == "entry"
        finally:
            watch(None)
        assert call(3) == 3


def test_a_retired_entry_is_none() -> None:
    call = dispatcher(Straight(given, None, ((0, -1),), 1, 0))
    call.retire(call.entries[0][0], lambda: None)
    assert call(3) == "original"


@pytest.mark.parametrize("arguments", [(((0, -2),), 1, 0), (((-1, 0),), 1, 0), ((), 1, 1), ((), 1, -2), ((3,), 1, 0)])
def test_what_does_not_fit_is_not_taken(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError, SystemError)):
        Straight(given, None, *arguments)


# ---- what capture makes ---------------------------------------------------------------------------------------------


def unpacked(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return xs[0] + xs[1], xs[1] * 2


def swapped(x: torch.Tensor, y: torch.Tensor = Y) -> Any:
    total = x + y
    return total, x - y, total


def nested(x: torch.Tensor, *, y: torch.Tensor) -> Any:
    return (x + y,), {"y": y - x}


SEEN: list[int] = []


def noted(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(1)
    return x + 1


def returned(x: torch.Tensor) -> Any:
    return x, x + 1


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool]] = [
    (torch.add, (X, Y), {}, True),
    (torch.add, (X,), {"other": Y}, False),
    (lambda x, y: x * y, (X, Y), {}, True),
    (lambda x: (x + 1, x * 3), (X,), {}, True),
    (unpacked, (X, Y), {}, True),
    (lambda x, y=Y: x - y, (X,), {}, True),
    (swapped, (X,), {}, False),
    (nested, (X,), {"y": Y}, False),
    (noted, (X,), {}, False),
    (returned, (X,), {}, False),
]


@pytest.mark.parametrize("function, args, kwargs, straight", CASES)
def test_of_programs(
    function: Callable[..., Any], args: Any, kwargs: Any, straight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Straight] = []

    def make(*arguments: Any) -> Straight:
        made.append(Straight(*arguments))
        return made[-1]

    monkeypatch.setattr(rewrite, "Straight", make)
    compiled: Any = stator.compile(function, options={"strict": True})
    SEEN.clear()
    results = [compiled(*args, **kwargs) for _ in range(3)]
    assert function is not noted or len(SEEN) == 3
    expected = function(*args, **kwargs)
    for result in results:
        torch.testing.assert_close(result, expected)
        assert type(result) is type(expected)
    frames: list[str] = []
    code = compiled.entries[0][1].__code__
    assert bool(made) is straight
    sys.setprofile(lambda frame, event, _: frames.append(event) if frame.f_code is code and event == "call" else None)
    try:
        compiled(*args, **kwargs)
    finally:
        sys.setprofile(None)
    assert frames == ["call"]
