"""Runs a program as Python does and compiled, and says how they differ.

Compared are the result or the exception (type and arguments), the arguments afterwards, everything told to the outside
in its order, and which of the results are one object. Calls go to `tell` and `note`, which capture cannot see into.
"""

from __future__ import annotations

import copy
import linecache
import warnings
from typing import Any, NamedTuple

import torch

import stator
from stator.base.errors import StatorWarning

#: What the running program has told.
told: list[Any] = []


def _tell(value: Any) -> int:
    told.append(copy.deepcopy(value))
    return len(told)


def _note(value: torch.Tensor) -> int:
    told.append(value.detach().clone())
    return int(value.numel())


class Bag:
    """A small class."""

    def __init__(self, total: int) -> None:
        self.total = total

    @property
    def twice(self) -> int:
        return self.total * 2


class Scope:
    """A context that notes what happens to it."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def __enter__(self) -> Scope:
        self.notes.append(1)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.notes.append(-1)
        return kind is KeyError


NAMESPACE = {
    "torch": torch, "Bag": Bag, "Scope": Scope,
    "tell": stator.disable(_tell), "note": stator.disable(_note),
}  # fmt: skip

Arguments = tuple[Any, ...]


class Outcome(NamedTuple):
    """What a run did."""

    result: Any
    error: Any
    arguments: Arguments
    told: list[Any]


def function_of(text: str, number: int = 0) -> Any:
    """The program as a function whose lines can be shown."""
    name = f"<program {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = dict(NAMESPACE)
    exec(compile(text, name, "exec"), namespace)
    return namespace["f"]


def arguments_of(a: int, b: int) -> Arguments:
    """Fresh arguments."""
    generator = torch.Generator().manual_seed(a * 31 + b)
    t, u = torch.randn(2, 3, generator=generator)
    return a, b, [3, 1, 2], {"p": 1, "q": 5}, t.clone(), u.clone()


def outcome(function: Any, a: int, b: int) -> Outcome:
    """Runs it once."""
    told.clear()
    arguments = arguments_of(a, b)
    result = error = None
    try:
        result = function(*arguments)
    except Exception as raised:
        error = type(raised), raised.args
    return Outcome(result, error, arguments, list(told))


def differences(text: str, calls: tuple[tuple[int, int], ...], number: int = 0) -> list[str]:
    """How the compiled program differs from Python's own in these calls, made one after the other."""
    plain, other = function_of(text, number), function_of(text, number)
    stator.reset()
    compiled = stator.compile(other, backend="eager", options={"strict": True})
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        for a, b in calls:
            want, got = outcome(plain, a, b), outcome(compiled, a, b)
            found += [
                f"f({a}, {b}): {field} is {mine!r}, not {theirs!r}"
                for field, mine, theirs in zip(Outcome._fields, got, want, strict=True)
                if not same(mine, theirs)
            ]
            if shared(got) != shared(want):
                found.append(f"f({a}, {b}): other objects are shared: {shared(got)}, not {shared(want)}")
    return found


def same(mine: Any, theirs: Any) -> bool:
    """Equal in type and value, tensors in their metadata too."""
    if type(mine) is not type(theirs):
        return False
    match mine:
        case torch.Tensor():
            facts = [(t.shape, t.dtype, t.stride(), t.requires_grad) for t in (mine, theirs)]
            return facts[0] == facts[1] and bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())
        case list() | tuple():
            return len(mine) == len(theirs) and all(map(same, mine, theirs))
        case dict():
            return list(mine) == list(theirs) and all(same(mine[key], theirs[key]) for key in mine)
    return bool(mine == theirs)


def shared(got: Outcome) -> list[int]:
    """For each list, dict and tensor in result and arguments, where the same object was met first."""
    seen: dict[int, int] = {}
    found: list[int] = []

    def visit(value: Any) -> None:
        if isinstance(value, list | dict | torch.Tensor):
            found.append(seen.setdefault(id(value), len(seen)))
        if isinstance(value, list | tuple):
            for item in value:
                visit(item)
        elif isinstance(value, dict):
            for item in value.values():
                visit(item)

    visit(got.result)
    visit(got.arguments)
    return found
