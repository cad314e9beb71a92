"""The table of patterns: stator's own, and what users register.

`register` only keeps the functions; they are traced when the first graph is compiled. The driver rewrites a graph
before it looks for it in the store, so what a pattern, or its check, makes of a graph is part of the graph's key.
Neighbours: `pattern.py` (what a pattern is), `rewrite.py` (who asks for them).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from stator.base.errors import InvalidPattern
from stator.patterns.pattern import Check, Pattern

_PATTERNS: dict[str, Pattern] = {}


def register(
    search: Callable[..., Any],
    replace: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    check: Check | None = None,
    name: str | None = None,
    any_rank: Iterable[str] = (),
) -> None:
    """From now on, graphs that compute `search(...)` compute `replace(...)` there.

    Both take the same arguments and give one tensor. Each of `example_inputs` says what the argument of its place
    stands for: a tensor, for any of its kind of dtype and its rank; a number, for any number that the program has
    written there. `any_rank` names tensors that may have another rank, as what is broadcast may.
    `check(match)` gives True, or False or in words why the pattern is not to be replaced there.
    A name that is known already is registered anew.
    """
    label = name or str(getattr(search, "__name__", "pattern"))
    if not callable(search) or not callable(replace) or not (check is None or callable(check)):
        raise InvalidPattern(label, "search, replace and check are functions")
    if not all(isinstance(example, torch.Tensor | int | float) for example in example_inputs):
        raise InvalidPattern(label, "example_inputs are tensors and numbers")
    pattern = Pattern(label, search, replace, tuple(example_inputs), check, frozenset(any_rank))
    for function, what in ((search, "search"), (replace, "replace")):
        if list(inspect.signature(function).parameters) != list(pattern.names) or len(pattern.names) != len(
            pattern.examples
        ):
            raise InvalidPattern(
                label,
                f"{what}() takes {_listed(inspect.signature(function).parameters)}, "
                f"search() takes {_listed(pattern.names)}, and there are {len(pattern.examples)} examples",
            )
    if unknown := pattern.any_rank - {*pattern.names}:
        raise InvalidPattern(label, f"any_rank names {_listed(sorted(unknown))}, which search() does not take")
    enter(pattern)


def enter(pattern: Pattern) -> None:
    """Put a pattern at the end of the table."""
    _PATTERNS.pop(pattern.name, None)
    _PATTERNS[pattern.name] = pattern


def unregister(name: str) -> None:
    """Graphs that are compiled from now on are not searched for the pattern."""
    if _PATTERNS.pop(name, None) is None:
        raise InvalidPattern(name, "there is no pattern of that name")


def patterns() -> tuple[Pattern, ...]:
    """All patterns, in the order in which they are tried."""
    return tuple(_PATTERNS.values())


def _listed(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"
