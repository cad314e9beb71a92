"""What a user calls: `compile` and `reset`; everything else public is defined where it belongs.

All arguments are checked here, when `compile` is called, so that nothing later has to doubt them; the answer is one
`Settings` record that travels with the function. Neighbours: `capture.entry` makes the callable, `backends.registry`
gives the backend, `stator/__init__.py` offers these names without importing anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeVar, overload

import torch

from stator.backends import builtin as _builtin  # noqa: F401  (fills the table)
from stator.backends import registry
from stator.base import announce
from stator.base.errors import InvalidArgument
from stator.base.options import OPTIONS, Options, Settings
from stator.capture import entry, hook

T = TypeVar("T", bound=Callable[..., Any])
BackendArgument = str | Callable[..., Any]


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: BackendArgument = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    disable: bool = ...,
) -> Callable[[T], T]: ...
@overload
def compile(
    model: T,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: BackendArgument = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    disable: bool = ...,
) -> T: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: BackendArgument = "inductor",
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or a module; also a decorator, with or without arguments.

    Compilation happens at the first call, and again when a later call differs in a way that matters.

    fullgraph  raise `CaptureError` where the program cannot be captured whole, instead of running parts in Python
    dynamic    True: sizes and int arguments are symbolic from the start; False: never; None: with their second value
    backend    a name of `list_backends()`, or a function of (gm, example_inputs)
    mode       a named set of options; `options` are added to it and win (`python -m stator options` lists both)
    disable    give the program back as it is
    """
    settings = decide(backend, fullgraph=fullgraph, mode=mode, options=options, dynamic=dynamic)
    _check_type("disable", disable, bool)
    if model is None:
        return functools.partial(_apply, settings=settings, disable=disable)
    return _apply(model, settings=settings, disable=disable)


def decide(
    backend: BackendArgument = "inductor",
    *,
    fullgraph: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    dynamic: bool | None = None,
) -> Settings:
    """The checked form of `compile`'s arguments."""
    _check_type("fullgraph", fullgraph, bool)
    _check_type("dynamic", dynamic, bool, NoneType, hint="True, False, or None for sizes that have had two values")
    _check_type("mode", mode, str, NoneType, hint="`python -m stator options` lists the modes")
    _check_type("options", options, Mapping, NoneType, hint='options={"name": value}')
    found = registry.lookup(backend)
    given = dict(options or {})
    if dynamic is not None and given.get("dynamic", _DYNAMIC[dynamic]) != _DYNAMIC[dynamic]:
        raise InvalidArgument(f"dynamic={dynamic} and the option 'dynamic' ({given['dynamic']!r}) say different things")
    # A third-party backend may have options of its own; what is not ours is offered to it.
    theirs = {} if found.own else {name: given.pop(name) for name in list(given) if name not in OPTIONS}
    checked = Options.from_user(mode, given, dynamic)
    checked.announce_unread(given, found.parts, found.name)
    return Settings(found.bind(checked, theirs), found.name, fullgraph, checked)


_DYNAMIC = {True: "always", False: "never"}


def _check_type(name: str, value: object, *types: type, hint: str = "True or False") -> None:
    """Refuse an argument of another type: truthy strings are mistakes."""
    if not isinstance(value, types):
        raise InvalidArgument(f"{name}= cannot be {value!r}", hint)


def _apply(model: Any, *, settings: Settings, disable: bool) -> Any:
    if isinstance(model, type) or not callable(model):
        hint = "compile an instance, or a function that makes and uses it" if isinstance(model, type) else ""
        raise InvalidArgument(f"compile() takes a function or a module, not {model!r}", hint)
    if disable:
        return model
    if isinstance(model, torch.nn.Module):
        return entry.compile_module(model, settings)
    return entry.compile_callable(model, settings)


def reset() -> None:
    """Forget every compiled version of every function, and what was announced once; the disk cache stays."""
    announce.forget()
    entry.reset()
    hook.reset()
