"""The functions a user puts inside a program to talk to the compiler.

Run by Python they do next to nothing; capture knows them by identity and gives them their meaning: `graph_break`
ends the graph, `is_compiling` is true, a function made by `disable` (it carries `DISABLED`) is called and not looked
into. Tensors carry what is said about their dims (`DYNAMIC`, `WEAK`, `STATIC`), which `capture/dynamic.py` reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, overload

from stator.base.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

DISABLED: Final = "_stator_disabled"  # on a function: the reason, a string
RECURSIVE: Final = "_stator_recursive"  # on a disabled function: whether what it calls is left to Python as well
ORIGINAL: Final = "_stator_original"  # of a compiled function: what it was made from
ALLOWED: Final = "_stator_allowed"  # on a function: it is one call in the graph
CONSTANT: Final = "_stator_constant"  # on a function: its result is taken once, while capturing
DYNAMIC: Final = "_stator_dynamic"  # on a tensor: dict of dimension -> Changing
WEAK: Final = "_stator_weak_dynamic"  # on a tensor: set of dimensions
STATIC: Final = "_stator_static"  # on a tensor: set of dimensions


class Changing(NamedTuple):
    """What is said of a size that changes: its bounds, both included, and what it is called."""

    min: int = 2
    max: int | None = None
    name: str = ""


def graph_break(reason: str = "") -> None:
    """End the graph here, and begin another one behind. Outside a compiled program this does nothing."""


def is_compiling() -> bool:
    """Whether the program is being compiled, rather than run by Python."""
    return False


@overload
def disable(fn: F, *, recursive: bool = ..., reason: str = ...) -> F: ...
@overload
def disable(fn: None = None, *, recursive: bool = ..., reason: str = ...) -> Callable[[F], F]: ...
def disable(fn: Any = None, *, recursive: bool = True, reason: str = "") -> Any:
    """Leave a function, or a module's forward, to Python; also a decorator, with or without arguments.

    With `recursive=False` the functions that it calls are compiled.
    """
    if not isinstance(recursive, bool) or not isinstance(reason, str):
        wrong = f"recursive={recursive!r}" if not isinstance(recursive, bool) else f"reason={reason!r}"
        raise InvalidArgument(f"disable() got {wrong}", "recursive is True or False, reason a sentence")
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(fn) or isinstance(fn, type):
        raise InvalidArgument(f"disable() takes a function or a module, not {fn!r}")
    why = reason or "it is marked with stator.disable"
    forward = getattr(fn, "forward", None)
    if callable(forward):  # a module stays the object that it is
        fn.forward = disable(forward, recursive=recursive, reason=why)
        return fn

    if (method := getattr(fn, "__func__", None)) is not None and hasattr(fn, ORIGINAL):
        return type(fn)(disable(method, recursive=recursive, reason=why), fn.__self__)
    wrapper = left_to_python(getattr(fn, ORIGINAL, fn)) if recursive else left_alone(getattr(fn, ORIGINAL, fn))
    setattr(wrapper, DISABLED, why)
    setattr(wrapper, RECURSIVE, recursive)
    return wrapper


# Two functions, because what is done about frames hangs on their code.


def left_to_python(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be run by Python with all that it calls."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def left_alone(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be run by Python itself."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def allow_in_graph(fn: F) -> F:
    """Put calls of a function of tensors into the graph as they are, without looking into it; also a decorator."""
    return _mark(fn, ALLOWED)


def assume_constant_result(fn: F) -> F:
    """Call a function once, while capturing, and take its result for constant; also a decorator."""
    return _mark(fn, CONSTANT)


def _mark(fn: F, name: str) -> F:
    if not callable(fn) or isinstance(fn, type):
        raise InvalidArgument(f"a function is marked so, not {fn!r}")
    setattr(fn, name, True)
    return fn


def mark_dynamic(
    tensor: Any, dims: int | Sequence[int], *, min: int = 2, max: int | None = None, name: str = ""
) -> None:
    """Say that sizes of a tensor change between calls, within two bounds, both included.

    They are symbolic from the first call on; a program that works for one number only is an error (MarkedSizeFixed).
    Sizes of one `name`, of this tensor and others, are one size; without, each is its own. Where they differ in a later
    call, that is another version; where those do that are marked, it is an error (MarkedSizesDiffer). InvalidArgument
    for a dim that there is not, or a range that the size is outside of.
    """
    _check_tensor("mark_dynamic", tensor)
    if not isinstance(min, int) or not isinstance(max, int | None):
        raise InvalidArgument(
            f"mark_dynamic() got the range {min!r} to {max!r}", "bounds are ints, or None for no maximum"
        )
    if min < 0 or (max is not None and max < min):
        raise InvalidArgument(f"mark_dynamic() got the empty range {min} to {max}")
    if not isinstance(name, str):
        raise InvalidArgument(f"mark_dynamic() got the name {name!r}", "sizes that are one have a string in common")
    marked = dict(getattr(tensor, DYNAMIC, {}))
    for dim in _dims("mark_dynamic", tensor, dims):
        size = tensor.shape[dim]
        if size < min or (max is not None and size > max):
            raise InvalidArgument(f"dimension {dim} has size {size}, outside the range {min} to {max} given for it")
        marked[dim] = Changing(min, max, name)
    setattr(tensor, DYNAMIC, marked)


def maybe_mark_dynamic(tensor: Any, dims: int | Sequence[int]) -> None:
    """Say that sizes of a tensor may change between calls; where the program needs one number they are static."""
    _check_tensor("maybe_mark_dynamic", tensor)
    setattr(tensor, WEAK, {*getattr(tensor, WEAK, ()), *_dims("maybe_mark_dynamic", tensor, dims)})


def mark_static(tensor: Any, dims: int | Sequence[int] | None = None) -> None:
    """Say that sizes of a tensor (default: all) are to be compiled one by one."""
    _check_tensor("mark_static", tensor)
    chosen = range(tensor.dim()) if dims is None else dims
    setattr(tensor, STATIC, {*getattr(tensor, STATIC, ()), *_dims("mark_static", tensor, chosen)})


def _check_tensor(what: str, tensor: Any) -> None:
    """What is marked is a tensor; this file does without torch, so it is known by what it can do."""
    if isinstance(tensor, type) or not callable(getattr(tensor, "dim", None)) or not hasattr(tensor, "shape"):
        raise InvalidArgument(f"{what}() marks sizes of a tensor, not of {tensor!r}")


def _dims(what: str, tensor: Any, dims: int | Sequence[int]) -> list[int]:
    """The dims that a user names, counted from the first."""
    rank = tensor.dim()
    chosen = tuple(dims) if isinstance(dims, Sequence) and not isinstance(dims, str) else (dims,)
    for dim in chosen:
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise InvalidArgument(f"{what}() got the dimension {dim!r}", "a dimension is an int, several are a list")
        if not -rank <= dim < rank:
            raise InvalidArgument(f"{what}() got dimension {dim} of a tensor that has {rank}")
    return [dim % rank for dim in chosen]
