"""The default device: where functions that make tensors put them when nobody says.

PyTorch keeps it in a function mode, which `with torch.device(…)` and `torch.set_default_device` push. For capture it is
a state of the interpreted program, as the grad mode is: outside of the frame it is guarded, inside of it contexts
change it, and each call that makes a tensor is given it as an argument.
Neighbours: `graph_context.py` (contexts in a graph), `functions.py` (asks `with_device`), `guards.py` (the state).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _device

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values.base import MethodValue
from stator.capture.values.fold import ask
from stator.capture.values.python.constant import NONE, ConstantValue, build_literal
from stator.capture.values.registry import builds, fresh, handles, makes
from stator.capture.values.torch.graph_context import GraphContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


@value_class
class DeviceValue(ConstantValue, GraphContext):
    """A device; `with` it, it is the default."""

    kind = "a device"

    def get_attr(self, tx: Machine, name: str) -> Value:
        return MethodValue(self, name) if name in ("__enter__", "__exit__") else super().get_attr(tx, name)

    def enter(self, tx: Machine) -> Value:
        tx.graph.devices.append(self.value)
        return NONE

    def leave(self, tx: Machine) -> None:
        tx.graph.devices.pop()


@builds(torch.device, exact=True)
def build_device(tx: Machine, obj: torch.device, source: Source) -> Value:
    """A device is guarded by its value."""
    build_literal(tx, obj, source)
    return DeviceValue(obj, source=source)


makes(torch.device)(DeviceValue)


def with_device(tx: Machine, function: Any, kwargs: dict[str, Value]) -> dict[str, Value]:
    """The keyword arguments of a call of torch, with the default device where the call makes a tensor on it."""
    if not tx.graph.devices or function not in _device._device_constructors():
        return kwargs
    given = kwargs.get("device")
    return kwargs if given is not None and not given.is_none() else {**kwargs, "device": fresh(tx.graph.devices[-1])}


@handles(torch.get_default_device)
def get_default_device(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The device of the innermost context of the program, else the process's."""
    if not any(isinstance(context, DeviceValue) for context in tx.graph.open_contexts):
        return ask(tx, torch.get_default_device)
    device = tx.graph.devices[-1]
    if device.index is None and device.type not in ("cpu", "meta"):
        raise GraphBreak("the default device is asked for, whose number is that of the current one")
    return fresh(device)
