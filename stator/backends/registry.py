"""The table of backends by name, and how `compile` makes a backend's argument into something to call.

The table starts empty: `builtin` fills it with stator's own, users with `register_backend`, other packages with the
entry point group `stator_backends`. What is entered as "module:function" is loaded when first named. A callable may
stand in place of a name. What is not our own is watched (`checked.py`).
Invariant: what `bind` returns takes exactly `(gm, example_inputs)`; every option is bound by then.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar, overload

from stator.backends.checked import Checked
from stator.base.errors import InvalidArgument, UnknownBackend, UnknownOption
from stator.base.options import CAPTURE, OPTIONS, Options
from stator.base.records import dataclass

GROUP: Final = "stator_backends"

CompileFn = Callable[..., Callable[..., Any]]
F = TypeVar("F", bound=CompileFn)


@dataclass(frozen=True, slots=True)
class Backend:
    """One entry: `own` backends take stator's `Options`, others a dictionary of what is theirs, if they ask for one.

    `compile` is the function, or "module:function" as long as nobody has asked for it. `parts` are those of the
    compiler that run with it, whose options have an effect. `dynamic` says that it takes graphs with symbols, as an
    attribute of that name on the function does.
    """

    name: str
    compile: CompileFn | str
    own: bool = False
    parts: tuple[str, ...] = (CAPTURE,)
    dynamic: bool = False

    def loaded(self) -> Backend:
        """The same entry with its function in place."""
        if not isinstance(self.compile, str):
            return self
        module, _, function = self.compile.partition(":")
        return replace(self, compile=getattr(import_module(module), function))

    @property
    def takes_options(self) -> bool:
        """Whether the function has a parameter called `options`."""
        try:
            parameters = inspect.signature(self.function).parameters
        except (TypeError, ValueError):  # a builtin without a signature
            return False
        return "options" in parameters

    @property
    def function(self) -> CompileFn:
        """The function of a loaded entry."""
        assert not isinstance(self.compile, str)
        return self.compile

    def bind(self, options: Options, theirs: Mapping[str, object]) -> Callable[[Any, list[Any]], Callable[..., Any]]:
        """The function with its options in place; options that nobody takes are the user's mistake."""
        if theirs and (self.own or not self.takes_options):
            raise UnknownOption(next(iter(theirs)), OPTIONS)
        if self.own:
            return functools.partial(self.function, options=options)
        function = functools.partial(self.function, options=dict(theirs)) if theirs else self.function
        dynamic = self.dynamic or bool(getattr(self.function, "dynamic", False))
        return Checked(self.name, function, dynamic, options.dynamic == "always")


_BACKENDS: dict[str, Backend] = {}


@overload
def register_backend(fn: F, *, name: str | None = ..., dynamic: bool = ...) -> F: ...
@overload
def register_backend(fn: None = None, *, name: str | None = ..., dynamic: bool = ...) -> Callable[[F], F]: ...
def register_backend(fn: Any = None, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Enter a backend under `name` (its function's own name by default); a decorator, with or without arguments.

    `dynamic` says that it takes graphs with symbolic sizes and numbers, with example inputs that have them.
    """
    if fn is None:
        return functools.partial(register_backend, name=name, dynamic=dynamic)
    if not callable(fn):
        raise InvalidArgument(f"a backend is a function of (gm, example_inputs), not {fn!r}")
    if name is not None and not isinstance(name, str):
        raise InvalidArgument(f"the name of a backend is a string, not {name!r}")
    enter(Backend(name or str(getattr(fn, "__name__", type(fn).__name__)), fn, dynamic=dynamic))
    return fn


def enter(backend: Backend) -> None:
    """Put one entry into the table; an existing name is replaced only by the same function."""
    known = _BACKENDS.get(backend.name)
    if known is not None and known.compile is not backend.compile:
        raise InvalidArgument(f"there already is a backend called {backend.name!r}", hint="give this one another name")
    _BACKENDS[backend.name] = backend


def list_backends() -> list[str]:
    """The names that `backend=` takes, those of installed packages included."""
    return sorted({*_BACKENDS, *_offered()})


def lookup(backend: str | CompileFn) -> Backend:
    """The entry of a name, or one made for a callable."""
    if isinstance(backend, str):
        if backend in _BACKENDS:
            found = _BACKENDS[backend] = _BACKENDS[backend].loaded()
            return found
        offered = _offered()
        if backend not in offered:
            raise UnknownBackend(backend, {*_BACKENDS, *offered})
        enter(Backend(backend, offered[backend].load()))
        return _BACKENDS[backend]
    if not callable(backend):
        raise InvalidArgument(f"backend= takes a name or a function of (gm, example_inputs), not {backend!r}")
    return Backend(getattr(backend, "__name__", type(backend).__name__), backend)


def _offered() -> dict[str, EntryPoint]:
    """The backends that other installed packages offer."""
    return {point.name: point for point in entry_points(group=GROUP)}
