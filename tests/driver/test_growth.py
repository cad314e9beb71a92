"""What compiling takes grows as programs do: four times as many operators are no sixteen times the work.

Python calls are counted, which no load changes.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

FEW, MANY = 100, 400
#: How many times the calls `MANY` may take: as many as it is times `FEW`, and a half of that for what is not counted.
MOST = 1.5 * MANY / FEW


def chain(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = x * 1.01 + 0.1
    return x


def written(x: Tensor, n: int) -> Tensor:
    y = x.clone()
    for i in range(n):
        y[i] = y[i - 1] + 1
    return y


PROGRAMS: dict[str, Callable[[Tensor, int], Any]] = {
    "one of many views": lambda x, n: x.unbind(0)[0] + 1,
    "views that are joined": lambda x, n: torch.stack([item + 1 for item in x.unbind(0)]),
    "pieces": lambda x, n: torch.cat(x.split(1)),
    "a sum of items": lambda x, n: sum(x.unbind(0)),
    "results": lambda x, n: [x * i for i in range(n)],
    "a chain": chain,
    "writes": written,
}


def calls(program: Callable[[Tensor, int], Any], n: int) -> int:
    """Python calls of a first call."""
    x = torch.randn(n)
    wanted = program(x, n)
    compiled = stator.compile(lambda x: program(x, n), options={"cache": False, "strict": True})
    profile = cProfile.Profile()
    profile.enable()
    found = compiled(x)
    profile.disable()
    torch.testing.assert_close(found, wanted)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_of_compiling(name: str) -> None:
    calls(PROGRAMS[name], FEW)  # what is made once a process
    few, many = (calls(PROGRAMS[name], n) for n in (FEW, MANY))
    assert many <= MOST * few, (few, many)
