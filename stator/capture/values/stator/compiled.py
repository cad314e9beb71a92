"""Compiled callables and modules inside a program that is being captured: looked through, to what they were made from.

The original is reached from the compiled object, which is guarded by identity; so an inner `compile` changes nothing
about what an outer one captures. Neighbours: `capture/compiled_module.py`, `csrc/dispatcher.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator._native import Dispatcher
from stator.capture.compiled_module import CompiledModule
from stator.capture.source import AttrSource
from stator.capture.values import watch
from stator.capture.values.registry import builds, wrap

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


@builds(Dispatcher)
def compiled_function(tx: Machine, obj: Any, source: Source) -> Value:
    """A compiled function."""
    watch.identity(tx, source, obj)
    return wrap(tx, obj.original, AttrSource(source, "original"))


@builds(CompiledModule)
def compiled_module(tx: Machine, obj: Any, source: Source) -> Value:
    """A compiled module."""
    watch.identity(tx, source, obj)
    return wrap(tx, obj._orig_mod, AttrSource(source, "_orig_mod"))
