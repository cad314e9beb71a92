"""The functions a user puts inside a program to talk to the compiler.

Run by Python they do next to nothing; capture knows them by identity and gives them their meaning: `graph_break`
refuses, `is_compiling` is true, a function made by `disable` (it carries `DISABLED`) is called and not looked into, a
tensor given to `mark_dynamic` (it carries `DYNAMIC`) is noted in the log: sizes are static.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, overload

from stator.base.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

DISABLED: Final = "_stator_disabled"  # on a function: the reason, a string
ORIGINAL: Final = "_stator_original"  # of a compiled function: what it was made from
DYNAMIC: Final = "_stator_dynamic"  # on a tensor: dict of dimension -> (least, greatest or None)


def graph_break(reason: str = "") -> None:
    """Leave the function that calls this to eager PyTorch. Outside a compiled program this does nothing."""


def is_compiling() -> bool:
    """Whether the program is being compiled, rather than run by Python."""
    return False


@overload
def disable(fn: F, *, reason: str = ...) -> F: ...
@overload
def disable(fn: None = None, *, reason: str = ...) -> Callable[[F], F]: ...
def disable(fn: Any = None, *, reason: str = "") -> Any:
    """Leave a function, or a module's forward, to Python; also a decorator, with or without arguments."""
    if fn is None:
        return functools.partial(disable, reason=reason)
    if not callable(fn) or isinstance(fn, type):
        raise InvalidArgument(f"disable() takes a function or a module, not {fn!r}")
    why = reason or "it is marked with stator.disable"
    forward = getattr(fn, "forward", None)
    if callable(forward):  # a module stays the object that it is
        fn.forward = disable(forward, reason=why)
        return fn

    if (method := getattr(fn, "__func__", None)) is not None and hasattr(fn, ORIGINAL):
        return type(fn)(disable(method, reason=why), fn.__self__)
    fn = getattr(fn, ORIGINAL, fn)

    @functools.wraps(fn)
    def left_to_python(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(left_to_python, DISABLED, why)
    return left_to_python


def mark_dynamic(tensor: Any, dims: int | Sequence[int], *, min: int = 2, max: int | None = None) -> None:
    """Say that sizes of a tensor will change between calls, between two bounds, both included; a hint for the log."""
    rank = tensor.dim()
    if min < 0 or (max is not None and max < min):
        raise InvalidArgument(f"mark_dynamic() got the empty range {min} to {max}")
    marked = dict(getattr(tensor, DYNAMIC, {}))
    for dim in (dims,) if isinstance(dims, int) else tuple(dims):
        if not -rank <= dim < rank:
            raise InvalidArgument(f"mark_dynamic() got dimension {dim} of a tensor that has {rank}")
        size = tensor.shape[dim]
        if size < min or (max is not None and size > max):
            raise InvalidArgument(f"dimension {dim} has size {size}, outside the range {min} to {max} given for it")
        marked[dim % rank] = (min, max)
    setattr(tensor, DYNAMIC, marked)
