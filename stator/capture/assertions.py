"""Branches on a tensor's data where one side does nothing but raise: `assert ok`, `if bad: raise …`.

Capture takes the other side, and the graph asserts that it was the right one. Where it is not, the compiled code raises
before anything of the call has happened, the original runs from the start, and raises what the program raises
(`recovery.py`). So checks of data cost a comparison, and no break.

    if (x < 0).any(): raise ValueError(…)  -->  torch._assert_async(logical_not((x < 0).any()))

Not where the program may handle the exception: then both sides are ways of the program. Nor on a GPU, where an
assertion stops the device. Neighbours: `opcodes/control.py` asks; `bytecode/flow.py` knows where instructions lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from stator.bytecode.flow import successors
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import having
from stator.capture.recovery import ASSERTION
from stator.capture.values.torch.tensor import TensorValue

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: What ends a function with an exception.
_RAISES = having("raises")

#: How many instructions are looked at to find that a branch raises.
_MOST = 400


def truth(tx: Machine, value: Value, target: int, jumps_if: bool) -> bool:
    """The truth of what a conditional jump asks, which may be assumed where the other way only raises."""
    if not _may_assert(tx, value):
        return value.truth(tx)
    assert isinstance(value, TensorValue)
    for raising, following in ((jumps_if, target), (not jumps_if, tx.ip)):
        if _only_raises(tx.decoded, following):
            _assert(tx, value, not raising)
            return not raising
    return value.truth(tx)


def assume(tx: Machine, value: TensorValue, wanted: bool) -> bool:
    """Asserts the truth of a tensor where anything else raises; False where the graph cannot assert it."""
    if not _may_assert(tx, value):
        return False
    _assert(tx, value, wanted)
    return True


def _may_assert(tx: Machine, value: Value) -> bool:
    """Whether the graph may ask for the truth of a value, and raise."""
    return _is_open(value) and not _may_be_handled(tx)


def _is_open(value: Value) -> bool:
    """Whether it is a tensor of one element on the CPU whose value only the call knows."""
    if type(value) is not TensorValue or value.fake.constant is not None or value.cls is not torch.Tensor:
        return False
    return value.fake.device.type == "cpu" and value.fake.numel() == 1


def _may_be_handled(tx: Machine) -> bool:
    """Whether some frame has a handler around it that is more than the end of a with statement."""
    frame: Machine | None = tx
    while frame is not None:
        block = frame.decoded.block_at(frame.ip - 1)
        if block is not None:
            names = [name for name, _ in frame.decoded.instructions[block.target : block.target + 2]]
            if names != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
                return True
        frame = frame.parent
    return False


def _only_raises(decoded: Decoded, start: int) -> bool:
    """Whether every way from an instruction ends in a raise statement, without going back."""
    waiting, seen = [start], {start}
    while waiting:
        index = waiting.pop()
        if decoded.instructions[index][0] in _RAISES:
            continue
        following = successors(decoded, index)
        if not following or len(seen) > _MOST or any(n <= index for n in following):
            return False
        waiting += [n for n in following if n not in seen]
        seen.update(following)
    return True


def _assert(tx: Machine, value: TensorValue, wanted: bool) -> None:
    """The graph raises if the tensor's truth is not what is wanted."""
    graph, location = tx.graph, tx.location()
    compare = torch.ne if wanted else torch.eq
    node, fake = graph.call("call_function", compare, ((value.node, 0), {}), ((value.fake, 0), {}), location)
    graph.call("call_function", torch._assert_async, ((node, ASSERTION), {}), ((fake, ASSERTION), {}), location)
