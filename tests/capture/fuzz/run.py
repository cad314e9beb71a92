"""Runs a program as Python does and compiled, and says how they differ.

Compared are the result or the exception (type, arguments, what it came from), the arguments and the global afterwards,
the gradients, everything told to the outside in its order, and which of the objects are one. Calls go to `tell` and
`note`, which capture cannot see into. However the calls differ, no function may have more versions than its limit.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import linecache
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import stator
from stator.base import faults
from stator.base.errors import StatorWarning
from stator.capture.entry import versions_of

#: Classes of the program that are compared by what is in their instances.
OBJECTS = ("Bag", "Spot")

#: What the running program has told.
told: list[Any] = []

#: Versions that a function may have: the limit, the last one that serves the rest, and the first.
MOST_VERSIONS = 10


def _tell(value: Any) -> int:
    told.append(copy.deepcopy(value))
    return len(told)


def _note(value: torch.Tensor) -> int:
    told.append(value.detach().clone())
    return int(value.numel())


class Scope:
    """A context that notes what happens to it."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def __enter__(self) -> int:
        self.notes.append(1)
        return len(self.notes)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.notes.append(-1)
        return kind is KeyError


NAMESPACE = {
    "collections": collections, "copy": copy, "dataclasses": dataclasses,
    "torch": torch, "stator": stator, "contextlib": contextlib, "Scope": Scope,
    "tell": stator.disable(_tell), "note": stator.disable(_note),
}  # fmt: skip


class Call(NamedTuple):
    """Two ints and the length of the tensors."""

    a: int
    b: int
    length: int


class Mode(NamedTuple):
    """How programs are compiled and called."""

    backend: str = "eager"
    dynamic: bool | None = None
    #: Whether gradients are asked for.
    trains: bool = False


class Outcome(NamedTuple):
    """What a run did."""

    result: Any
    error: Any
    arguments: tuple[Any, ...]
    told: list[Any]
    count: Any
    gradients: list[Any]


def function_of(text: str, number: int = 0) -> Any:
    """The program's `f`, whose lines can be shown."""
    name = f"<program {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = dict(NAMESPACE)
    exec(compile(text, name, "exec"), namespace)
    return namespace["f"]


def outcome(function: Any, namespace: dict[str, Any], call: Call, trains: bool) -> Outcome:
    """Runs it once."""
    told.clear()
    namespace["COUNT"] = 0
    generator = torch.Generator().manual_seed(call.a * 31 + call.b)
    leaves = torch.randn(3, call.length, generator=generator).unbind(0)
    leaves = tuple(leaf.clone().requires_grad_(trains) for leaf in leaves)
    t, u, held = (leaf * 1 for leaf in leaves)
    bag = namespace["Bag"](call.b, held)
    arguments = call.a, call.b, [3, 1, 2], {"p": 1, "q": 5}, t, u, bag
    result = error = None
    try:
        result = function(*arguments)
    except Exception as raised:
        error = list(described(raised))
    return Outcome(
        result,
        error,
        arguments,
        list(told),
        namespace["COUNT"],
        gradients(leaves, (result, arguments)) if trains else [],
    )


def described(error: BaseException | None) -> Iterator[Any]:
    """An exception and those that it came from."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        cause = error.__cause__
        yield (
            type(error).__name__,
            error.args,
            error.__suppress_context__,
            None if cause is None else type(cause).__name__,
        )
        error = error.__context__


def gradients(leaves: tuple[torch.Tensor, ...], reached: Any) -> list[Any]:
    """What the leaves get from everything that can be reached, or why they get nothing."""
    found = [value for value in walk(reached) if isinstance(value, torch.Tensor) and value.requires_grad]
    if not found:
        return []
    try:
        sum(value.sum() for value in found).backward()  # type: ignore[union-attr]
    except RuntimeError as error:
        return [type(error)]
    return [leaf.grad for leaf in leaves]


def without_zeros(got: Outcome) -> Outcome:
    """Gradients of zero as none: a graph that is differentiated as a whole gives zeros to inputs that do not matter."""
    kept = [None if isinstance(value, torch.Tensor) and not value.any() else value for value in got.gradients]
    return got._replace(gradients=kept)


def differences(text: str, calls: tuple[Call, ...], mode: Mode, strict: bool = True) -> list[str]:
    """How the compiled program differs from Python's own in these calls, made one after the other.

    Our own failures are differences, but for what a backend does not support: then the original has to run.
    """
    plain, other = function_of(text), function_of(text)
    stator.reset()
    compiled = stator.compile(other, backend=mode.backend, dynamic=mode.dynamic, options={"strict": strict})
    close = mode.backend != "eager"
    found = []
    before = faults.total()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        for call in calls:
            want = outcome(plain, plain.__globals__, call, mode.trains)
            got = outcome(compiled, other.__globals__, call, mode.trains)
            if strict and got.error and got.error[0][0] == "Unsupported":
                return differences(text, calls, mode, strict=False)
            if mode.backend != "eager":
                got, want = without_zeros(got), without_zeros(want)
                if got.gradients == [RuntimeError]:
                    # What one result needs is needed by all results of a graph, so overwriting it is an error for all.
                    got = got._replace(gradients=want.gradients)
            found += [
                f"f{tuple(call)}: {field} is {shown(mine)}, not {shown(theirs)}"
                for field, mine, theirs in zip(Outcome._fields, got, want, strict=True)
                if not same(mine, theirs, close)
            ]
            if shared(got) != shared(want):
                found.append(f"f{tuple(call)}: other objects are shared: {shared(got)}, not {shared(want)}")
    found += map(str, faults.recent(before))
    if len(versions_of(compiled)) > MOST_VERSIONS:
        found.append(f"{len(versions_of(compiled))} versions")
    return found


def shown(value: Any) -> str:
    """A value as text, a bag by what is in it."""
    if type(value).__name__ in OBJECTS:
        return f"{type(value).__name__}({shown(vars(value))})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {shown(item)}' for key, item in value.items())}}}"
    return repr(value)


def same(mine: Any, theirs: Any, close: bool = False) -> bool:
    """Equal in type and value, tensors in their metadata too."""
    if type(mine).__name__ != type(theirs).__name__:
        return False
    match mine:
        case torch.Tensor():
            facts = [(t.shape, t.dtype, t.stride(), t.requires_grad) for t in (mine, theirs)]
            if facts[0] != facts[1]:
                return False
            if close:
                return torch.allclose(mine, theirs, 1e-3, 1e-4, equal_nan=True)
            return bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())
        case list() | tuple():
            return len(mine) == len(theirs) and all(same(*pair, close) for pair in zip(mine, theirs, strict=True))
        case collections.deque():
            return mine.maxlen == theirs.maxlen and same(list(mine), list(theirs), close)
        case dict():
            return list(mine) == list(theirs) and all(
                same(dict.__getitem__(mine, key), dict.__getitem__(theirs, key), close) for key in mine
            )
    if type(mine).__name__ in OBJECTS:
        return same(vars(mine), vars(theirs), close)
    return bool(mine == theirs)


def walk(value: Any) -> Iterator[Any]:
    """Every list, dict, bag and tensor that is reached, in order, as often as it is reached."""
    match value:
        case torch.Tensor():
            yield value
        case list() | tuple() | collections.deque():
            yield value
            for item in value:
                yield from walk(item)
        case dict():
            yield value
            yield from walk(list(value.values()))
        case set():
            yield value
        case _ if type(value).__name__ in OBJECTS:
            yield value
            yield from walk(list(vars(value).values()))


def shared(got: Outcome) -> list[int]:
    """For each object in result and arguments that can change, where the same one was met first."""
    seen: dict[int, int] = {}
    kept = list(walk((got.result, got.arguments)))
    return [seen.setdefault(id(value), len(seen)) for value in kept if not isinstance(value, tuple)]
