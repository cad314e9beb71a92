"""Running Python at capture: pure functions on known arguments.

An exception of the function is an exception of the interpreted program.
Neighbours: `operators.py` and `pure.py` (what counts as pure), `registry.fresh` (the results).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak, StatorError
from stator.capture.source import ConstSource, constant_key
from stator.capture.value import Raised
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value


def all_constant(args: Iterable[Value], kwargs: Mapping[str, Value] | None = None) -> bool:
    """Whether all arguments are constants."""
    return all(arg.is_constant() for arg in args) and (not kwargs or all(arg.is_constant() for arg in kwargs.values()))


def run(tx: Machine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """`function(*args, **kwargs)` on Python objects; what it raises, the program raises."""
    try:
        return function(*args, **(kwargs or {}))
    except (GraphBreak, StatorError, Raised, RecursionError):
        raise
    except Exception as error:  # whatever it is, it is the program's own
        tx.raise_exception(type(error), *error.args)


class Question:
    """A call whose answer may change; a guard asks again."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def __call__(self, _: object = None) -> Any:
        """The answer, or the class of the exception."""
        try:
            return self.function(*self.args, **self.kwargs)
        except Exception as error:
            return type(error)


def _told_apart(value: Any) -> object:
    """Equal for what makes one question: methods by their objects, containers, which are copies, by their items."""
    if type(value) is types.MethodType:
        return types.MethodType, constant_key(value.__func__), constant_key(value.__self__)
    if type(value) in (list, tuple):
        return type(value), tuple([_told_apart(item) for item in value])
    if type(value) is dict:
        return dict, tuple([(_told_apart(name), _told_apart(item)) for name, item in value.items()])
    return constant_key(value)


def ask(
    tx: Machine, function: Callable[..., Any], args: Sequence[Value] = (), kwargs: Mapping[str, Value] | None = None
) -> Value:
    """`fold` for a function of the state of the process."""
    plain = [value.snapshot() for value in args]
    named = {name: value.snapshot() for name, value in (kwargs or {}).items()}
    key = _told_apart(function), _told_apart(plain), _told_apart(named)
    if key not in tx.session.questions:
        question = Question(function, plain, named)
        tx.session.questions[key] = question  # it keeps alive what the key has by its id
        tx.guard("CALL", ConstSource(function), (question, question()))
    return fresh(run(tx, function, plain, named))


def fold(
    tx: Machine, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value] | None = None
) -> Value:
    """The value of a pure function on values that are all known (lists and dicts are copied for it)."""
    plain = [value.snapshot() for value in args]
    plain_kwargs = {name: value.snapshot() for name, value in kwargs.items()} if kwargs else None
    result = run(tx, function, plain, plain_kwargs)
    for value, given in zip(args, plain, strict=True):
        if result is given and value.source is not None and not value.is_symbolic():
            return value  # such as `str(text)`: the very object
    return fresh(result)
