"""Deques that are bounded, that grow from call to call, and that change while they are iterated over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base import log

LIMITS = (None, 0, 1, 3, 20)


def follow(program: Callable[..., Any], start: Callable[[], deque[Any]], calls: int = 8) -> int:
    """Calls both ways, each with a deque of its own that lives on; the number of graphs."""
    ours, theirs = start(), start()
    compiled = stator.compile(program, fullgraph=True)
    with log.collect() as recorder:
        for number in range(calls):
            x = torch.full((2,), float(number))
            assert repr(compiled(x, ours, number / 2)) == repr(program(x, theirs, number / 2))
            assert repr(ours) == repr(theirs)
    return len(recorder.of(log.GRAPH))


@pytest.mark.parametrize("limit", LIMITS)
def test_one_that_is_only_filled_need_not_have_one_length(limit: int | None) -> None:
    def program(x: torch.Tensor, recent: deque[Any], value: float) -> torch.Tensor:
        recent.append(value)
        recent.extend([x, value])
        return x * 2

    assert follow(program, lambda: deque([1.0, 2.0], limit)) <= 2


@pytest.mark.parametrize("limit", LIMITS)
def test_what_was_put_in_is_there(limit: int | None) -> None:
    def program(x: torch.Tensor, recent: deque[Any], value: float) -> Any:
        recent.append(value)
        recent.append(x + 1)
        last = recent[-1] if recent else None
        return x * len(recent), last, list(recent), recent.maxlen

    follow(program, lambda: deque([1.0, 2.0], limit), calls=4)


def test_one_that_the_frame_makes() -> None:
    def program(x: torch.Tensor, recent: deque[Any], value: float) -> Any:
        made = deque(maxlen=2)
        for item in (x, value, x * 2):
            made.append(item)
        made.reverse()
        return made, len(made)

    assert follow(program, deque) <= 2


CHANGES: dict[str, Callable[[deque[int]], Any]] = {
    "append": lambda d: d.append(3),
    "appendleft": lambda d: d.appendleft(1),
    "extend by nothing": lambda d: d.extend([]),
    "pop": lambda d: d.pop(),
    "popleft": lambda d: d.popleft(),
    "clear": lambda d: d.clear(),
    "insert": lambda d: d.insert(0, 1),
    "remove": lambda d: d.remove(3),
    "rotate": lambda d: d.rotate(1),
    "reverse": lambda d: d.reverse(),
    "assign": lambda d: d.__setitem__(0, 5),
    "delete": lambda d: d.__delitem__(0),
}


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_while_it_is_iterated_over(change: str, limit: int | None) -> None:
    """A full one that holds the same number three times has equal contents after an append."""

    def program(x: torch.Tensor, items: deque[int], after: int) -> Any:
        seen: list[Any] = []
        try:
            for item in items:
                seen.append(item)
                if len(seen) == after:
                    CHANGES[change](items)
        except (RuntimeError, IndexError, ValueError) as error:
            seen.append(repr(error))
        return x + 1, seen

    compiled = stator.compile(program)
    for after in (1, 2, 3):
        for start in ([1, 2, 3], [3, 3, 3]):
            if change == "insert" and limit:
                continue  # a full one refuses that
            ours, theirs = deque(start, limit), deque(start, limit)
            assert compiled(torch.ones(2), ours, after)[1] == program(torch.ones(2), theirs, after)[1]
            assert ours == theirs
