"""Ranges that name a part of the program for a profiler: there is nothing to compute in them.

Operators of a graph are run, fused and reordered as a whole, so the names have nothing to stand for.
Neighbours: `autocast.py` and `state.py` (contexts that mean something).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from stator.capture.fields import value_class
from stator.capture.values.base import Modelled
from stator.capture.values.python.constant import FALSE
from stator.capture.values.registry import handles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


@value_class
class RangeValue(Modelled):
    """A context that does nothing; a decorator as well."""

    kind = "a profiler range"

    def python_type(self) -> type:
        return torch.autograd.profiler.record_function

    def truth(self, tx: Machine) -> bool:
        return True

    def m___enter__(self, tx: Machine, /) -> Value:
        return self

    def m___exit__(self, tx: Machine, /, *exception: Value) -> Value:
        return FALSE

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return args[0]

    def reconstruct(self, out: Assembler) -> None:
        out.call(contextlib.nullcontext)


@handles(torch.autograd.profiler.record_function)
def call_range(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.profiler.record_function(name)`."""
    return RangeValue()
