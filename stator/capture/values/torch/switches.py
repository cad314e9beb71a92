"""Switches of the process that programs turn around a part of themselves: which kernels attention may use.

Turning one is a call of the graph, as turning the grad mode is, so that operators are chosen under it whoever runs the
graph; how it is left is an effect of the frame. What it is before is guarded. What programs are told of compilers goes
by one of them as well.
Neighbours: `state.py` (grad mode and autocast), `effects.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stator.capture.fields import part, value_class
from stator.capture.value import Value
from stator.capture.values.fold import ask, fold
from stator.capture.values.python.constant import NONE, TRUE
from stator.capture.values.registry import CALLS, handles
from stator.graphs.modes import ATTENTION_KERNELS, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler


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


def _register(setter: Any, getter: Any, guarded: bool) -> None:
    def found(tx: Machine) -> Value:
        return fold(tx, getter, ()) if guarded else ask(tx, getter)

    def turn(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        switch = turned(tx, setter) or Switch(setter, found(tx))
        (switch.now,) = args
        tx.effects.change(switch)
        tx.graph.record(setter, (switch.now.graph_argument()[0],), tx.location())
        return NONE

    def read(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        switch = turned(tx, setter)
        return found(tx) if switch is None else switch.now

    CALLS[setter] = turn
    CALLS[getter] = read


@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def is_compiling(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Whether a compiler traces this: yes, unless the kernel that can compute any attention is switched off.

    Libraries look at a mask's data to leave it out, and keep it where a compiler would have to look. The kernels that
    are left may not take a mask, so that a program which eager runs would raise: there the library is to do what it
    does in eager. What torch does for compilers itself has nothing to do with masks.
    """
    if tx.code.co_filename.startswith(tx.session.library):
        return TRUE
    return CALLS[SWITCHES["math"].read](tx, (), {})


for _name, _switch in SWITCHES.items():
    _register(*_switch, guarded=_name in ATTENTION_KERNELS)  # by the state "attention"
