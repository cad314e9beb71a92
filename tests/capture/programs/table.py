"""What a program of the suite states about itself: its arguments, its graphs, whether it has an inherent break.

A program is a plain function, registered by `@program(…)` in the file of its topic. `make` gives fresh arguments for
one way of running; both ways get equal ones, and call the program more than once on them, so that what a call leaves
behind meets the next. Neighbours: `runner.py` (compares with eager), the topic files (import this one only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Make = Callable[[], tuple[Any, ...]]


class Program(NamedTuple):
    """One small program."""

    function: Callable[..., Any]
    make: Make
    #: How many graphs the first call gives; None where nothing is stated.
    graphs: int | None
    #: How many operators these graphs have; None where nothing is stated.
    operators: int | None
    #: Why no single graph can hold it; empty for the others.
    breaks: str

    @property
    def name(self) -> str:
        """Topic and name."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"


PROGRAMS: list[Program] = []


def program(
    make: Make | None = None, *, graphs: int | None = None, operators: int | None = None, breaks: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a program; it takes one tensor unless `make` says otherwise, and is one graph unless it `breaks`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        stated = graphs if breaks or graphs is not None else 1
        PROGRAMS.append(Program(function, make or (lambda: (x(),)), stated, operators, breaks))
        return function

    return register


def x() -> torch.Tensor:
    """A matrix of random numbers, 2 by 3."""
    return torch.randn(2, 3)


def leaf() -> torch.Tensor:
    """A matrix that takes gradients."""
    return torch.randn(2, 3, requires_grad=True)
