"""Switches of the process that programs turn around a part of themselves: which kernels attention may use.

Turning one is a call of the graph, as turning the grad mode is, so that operators are chosen under it whoever runs the
graph; how it is left is an effect of the frame. What it is before is a question that guards ask again.
Neighbours: `state.py` (grad mode and autocast), `effects.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stator.capture.fields import part, value_class
from stator.capture.value import Value
from stator.capture.values.fold import ask
from stator.capture.values.python.constant import NONE
from stator.capture.values.registry import CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler

#: How a switch is turned, and how it is read, by name; not all are in every version.
NAMES = (
    *((f"_set_sdp_use_{name}", f"_get_{name}_sdp_enabled") for name in ("flash", "mem_efficient", "math", "cudnn")),
    ("_set_sdp_use_overrideable", "_get_overrideable_sdp_enabled"),
    ("_set_sdp_priority_order", "_get_sdp_priority_order"),
)


@value_class
class Switch(Value):
    """One that the frame has turned."""

    kind = "a switch of the process"

    setter: Callable[[Any], None]
    before: Value
    now: Value = part(init=False)

    def __post_init__(self) -> None:
        self.now = self.before

    def write_back(self, out: Assembler) -> None:
        """Emit the call that leaves it as the program does."""
        if self.now.snapshot() != self.before.snapshot():
            out.call(self.setter, self.now)
            out.pop()


def turned(tx: Machine, setter: Any) -> Switch | None:
    """The switch, if the frame has turned it."""
    return next((value for value in tx.effects.changed if isinstance(value, Switch) and value.setter is setter), None)


def _register(setter: Any, getter: Any) -> None:
    def turn(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        switch = turned(tx, setter) or Switch(setter, ask(tx, getter))
        (switch.now,) = args
        tx.effects.change(switch)
        tx.graph.record(setter, (switch.now.graph_argument()[0],), tx.location())
        return NONE

    def read(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        switch = turned(tx, setter)
        return ask(tx, getter) if switch is None else switch.now

    CALLS[setter] = turn
    CALLS[getter] = read


for _setter, _getter in NAMES:
    if hasattr(torch._C, _setter):
        _register(getattr(torch._C, _setter), getattr(torch._C, _getter))
