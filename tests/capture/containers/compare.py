"""Runs a case as Python does and compiled, and says how they differ.

Compared are the result or the exception (class and message), all objects that took part afterwards, and which of them
are one. The compiled function has a tensor operation beside it, so that there is a graph; a break is no difference.
"""

from __future__ import annotations

import contextlib
import io
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import stator
from stator.base.errors import CaptureError
from tests.capture.containers.tables import NAMESPACE

if TYPE_CHECKING:
    from tests.capture.containers.cases import Case

NAMES = "rxyz"


class Outcome(NamedTuple):
    """What a run did."""

    result: Any
    error: Any
    objects: Any

    @property
    def group(self) -> tuple[str, ...]:
        """Outcomes of one group are alike."""
        if self.error is not None:
            return "error", *map(str, self.error)
        return "result", str(self.result[1][0])


def take(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """A function that takes everything."""
    return args, kwargs


def source(action: str, objects: tuple[str, ...], passed: bool, caught: bool) -> str:
    """The text of a function that performs the action and gives the result with all objects."""
    names = NAMES[: len(objects)]
    lines = [f"def f({''.join(f'{name}, ' for name in names) if passed else ''}t):", "    t = t + 0"]
    if not passed:
        lines += [f"    {name} = {text}" for name, text in zip(names, objects, strict=True)]
    body = action.splitlines()
    if caught:
        lines += ["    try:", *(f"        {line}" for line in body)]
        lines += ["    except Exception as raised:", "        result = 'raised', type(raised), str(raised)"]
    else:
        lines += [f"    {line}" for line in body]
    lines.append(f"    return result, t + 1{''.join(f', {name}' for name in names)}")
    return "\n".join(lines) + "\n"


def function_of(text: str) -> types.FunctionType:
    """The function `f` of a text, with a module of its own."""
    namespace = dict(NAMESPACE, take=take, utf="utf-8")
    exec(compile(text, "<case>", "exec"), namespace)
    return namespace["f"]


def made(objects: tuple[str, ...], t: torch.Tensor) -> list[Any]:
    """The objects, fresh."""
    namespace = dict(NAMESPACE, utf="utf-8", t=t)
    return [eval(text, namespace) for text in objects]


def tensor() -> torch.Tensor:
    """What `t` is."""
    return torch.tensor([1.0, 2.0])


def run(function: Callable[..., Any], objects: tuple[str, ...], passed: bool) -> Outcome:
    """Calls it once; what it prints is dropped."""
    t = tensor()
    given = made(objects, t) if passed else []
    result = error = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = function(*given, t)
    except Exception as raised:
        error = type(raised).__name__, str(raised)
    seen = Described()
    return Outcome(seen(result), error, seen(given))


def outcome(action: str, objects: tuple[str, ...]) -> Outcome | None:
    """What Python does, or None where it does not do the same twice."""
    try:
        function = function_of(source(action, objects, True, False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = run(function, objects, True), run(function, objects, True)
    except (SyntaxError, RecursionError, MemoryError, OverflowError):
        return None
    return first if first == second else None


def usable(native: Outcome) -> bool:
    """Whether an outcome does not tell addresses, and ends."""
    return " at 0x" not in str(native) and "<endless>" not in str(native)


class Described:
    """Objects as plain data that compare, with numbers for identity."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, Any]] = {}

    def __call__(self, value: Any) -> Any:
        kind = type(value).__name__
        if value is None or kind in PLAIN:
            return kind, repr(value)
        if isinstance(value, type | types.FunctionType | types.ModuleType | types.CodeType):
            return kind, getattr(value, "__qualname__", repr(value))
        if id(value) in self.seen:
            return kind, self.seen[id(value)][0]
        if type(value) is tuple:
            return kind, [self(item) for item in value]
        number = len(self.seen)
        self.seen[id(value)] = number, value
        return kind, number, self.contents(value), self.attributes(value)

    def attributes(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) or not hasattr(value, "__dict__"):
            return None
        return [(name, self(item)) for name, item in vars(value).items()]

    def contents(self, value: Any) -> Any:
        """What is in an object."""
        match value:
            case torch.Tensor():
                return str(value.dtype), value.tolist()
            case dict():
                factory = getattr(value, "default_factory", None)
                return [(self(key), self(item)) for key, item in dict.items(value)], self(factory)
            case set() | frozenset():
                # A set that is rebuilt may have a table of another size: lists of the items are compared, where made.
                return sorted(str(Described()(item)) for item in value)
            case deque():
                return value.maxlen, [self(item) for item in value]
            case list() | tuple():
                return [self(item) for item in value]
            case types.MethodType() | types.BuiltinMethodType() | types.MethodWrapperType():
                owner = getattr(value, "__self__", None)
                shown = None if isinstance(owner, types.ModuleType) else self(owner)
                return getattr(value, "__qualname__", None), shown
            case bytearray() | memoryview():
                return bytes(value).hex()
            case slice():
                return self(value.start), self(value.stop), self(value.step)
            case types.MappingProxyType():
                return [(self(key), self(item)) for key, item in value.items()] if len(value) < 9 else len(value)
        if hasattr(type(value), "__next__"):
            return self.remaining(value)
        if type(value).__name__ in VIEWS:
            return [self(item) for item in value]
        return repr(value) if type(value).__repr__ is not object.__repr__ else None

    def remaining(self, iterator: Iterator[Any]) -> Any:
        """What an iterator still gives."""
        try:
            items = list(islice(iterator, 40))
        except Exception as error:
            return type(error).__name__, str(error)
        return [self(item) for item in items] if len(items) < 40 else "<endless>"


PLAIN = frozenset(
    {
        "int", "float", "complex", "bool", "str", "bytes", "range", "ellipsis", "NotImplementedType", "Text", "Data",
        "Whole", "Real", "Angle", "Color", "Level", "Mask", "Word", "wrapper_descriptor", "method_descriptor",
        "getset_descriptor", "member_descriptor", "classmethod_descriptor",
    }
)  # fmt: skip
VIEWS = frozenset({"dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items"})


class Verdict(NamedTuple):
    """What is to be said of a case: how it differs, and why it was not captured whole."""

    differences: list[str]
    refused: str | None


def check(case: Case) -> Verdict:
    """Compares a case."""
    text = source(case.action, case.objects, case.passed, case.caught)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = run(function_of(text), case.objects, case.passed)
        refused = None
        stator.reset()
        compiled = stator.compile(function_of(text), backend="eager", fullgraph=True)
        try:
            got = attempt(compiled, case)
        except CaptureError as error:
            refused = error.reason.partition("\n")[0].removeprefix("cannot capture this program as one graph: ")
            stator.reset()
            compiled = stator.compile(function_of(text), backend="eager", options={"strict": True})
            got = attempt(compiled, case)
        again = attempt(compiled, case)
    found = [
        f"{field}{turn} is {' '.join(map(str, first_difference(mine, theirs)))}"
        for turn, one in (("", got), (" of the second call", again))
        for field, mine, theirs in zip(Outcome._fields, one, want, strict=True)
        if mine != theirs and (not turn or one != got)
    ]
    return Verdict(found, refused)


def first_difference(mine: Any, theirs: Any) -> tuple[Any, str, Any]:
    """The innermost parts of two descriptions that differ."""
    if isinstance(mine, tuple | list) and type(mine) is type(theirs) and len(mine) == len(theirs):
        for left, right in zip(mine, theirs, strict=True):
            if left != right:
                return first_difference(left, right)
    return mine, "not", theirs


def attempt(compiled: Callable[..., Any], case: Case) -> Outcome:
    """Runs it compiled: what stator itself raises is not the program's."""
    got = run(compiled, case.objects, case.passed)
    if got.error is not None and got.error[0] == "CaptureError":
        raise CaptureError(got.error[1])
    return got
