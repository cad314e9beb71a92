"""stator compiles PyTorch programs: `stator.compile(model)` gives the same results, faster.

This file is the public interface. Importing it imports nothing: each name is fetched from where it is defined when it
is first used, so that `import stator` costs a program that compiles nothing, nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stator.base import isolation

if TYPE_CHECKING:
    from stator import patterns
    from stator.api import compile, reset
    from stator.backends.builtin import list_backends, register_backend
    from stator.base.errors import CaptureError, StatorError
    from stator.base.markers import (
        allow_in_graph,
        assume_constant_result,
        disable,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        maybe_mark_dynamic,
    )
    from stator.inspect.explain import explain

isolation.install()

__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "StatorError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "patterns",
    "register_backend",
    "reset",
]

_WHERE = {
    "CaptureError": "stator.base.errors",
    "StatorError": "stator.base.errors",
    "allow_in_graph": "stator.base.markers",
    "assume_constant_result": "stator.base.markers",
    "compile": "stator.api",
    "disable": "stator.base.markers",
    "explain": "stator.inspect.explain",
    "graph_break": "stator.base.markers",
    "is_compiling": "stator.base.markers",
    "list_backends": "stator.backends.builtin",
    "mark_dynamic": "stator.base.markers",
    "mark_static": "stator.base.markers",
    "maybe_mark_dynamic": "stator.base.markers",
    "patterns": "stator.patterns",
    "register_backend": "stator.backends.builtin",
    "reset": "stator.api",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'stator' has no attribute {name!r}")
    with import_module("stator.base.collector").paused():  # modules stay
        import_module(_WHERE[name])
    # With it comes what else is loaded by now: a program that is captured names markers, and must not run this.
    for other, where in _WHERE.items():
        if where in sys.modules and other in vars(sys.modules[where]):
            globals()[other] = vars(sys.modules[where])[other]
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
