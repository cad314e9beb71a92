"""Ending a graph in the middle of a frame: the code behind the graph call, and the points where it goes on.

    graph call → effects → the stack as it is here → the instruction, for real → Continuation(point, stack and slots)

A jump on an unknown condition ends at one of two points, an instruction under a handler at the handler's as well. While
an exception is being handled, the new code handles it too, and stops doing so before it leaves.
Invariant: the state is that before the instruction, so nothing of it has been done; whatever cannot be rebuilt is
refused while the code is written. Neighbours: `rewrite.py` (writes code), `resume.py`, `root.py` (the state).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bytecode import Instr, Label
from bytecode.instr import InstrLocation, TryBegin, TryEnd

from stator._native import Continuation
from stator.base.errors import GraphBreak
from stator.bytecode import continuation, encode, flow
from stator.bytecode.liveness import live
from stator.bytecode.opcodes import COUNTS, OPCODES, having
from stator.capture.resume import ResumePoint
from stator.capture.values.python.objects.function import CellValue

if TYPE_CHECKING:
    from types import FunctionType

    from stator.bytecode.instructions import Decoded
    from stator.capture.resume import ResumePoints
    from stator.capture.rewrite import Assembler
    from stator.capture.root import RootMachine
    from stator.capture.source import Source
    from stator.capture.value import Value

#: Instructions that do nothing which capture could refuse; the graph may end before them all the same.
SILENT = having("silent")

#: Instructions that call what is below their arguments.
CALLS = having("calls")

#: Emits what pushes one argument of a point.
Load = Callable[[], None]


class NoBreak(GraphBreak):
    """The frame cannot be left here."""


class Handling(GraphBreak):
    """An exception that was raised while capturing is being handled: it has no traceback yet."""


def with_unbound_method(stack: Sequence[Value | None], name: str, arg: Any) -> list[Value | None]:
    """The stack before a call of a method, with method and object apart as Python has them, which error texts show."""
    found = list(stack)
    if name in CALLS:
        start = len(found) - COUNTS[OPCODES[name].operand](arg) - 2
        pair = found[start : start + 2]
        method = next((value for value in pair if value is not None), None)
        if None in pair and method is not None and (parts := method.unbound()) is not None:
            found[start : start + 2] = parts
    return found


class Exit:
    """Writes the end of one captured part."""

    def __init__(self, out: Assembler, machine: RootMachine, points: ResumePoints, function: FunctionType) -> None:
        self.out = out
        self.machine = machine
        self.points = points
        self.function = function
        self.decoded: Decoded = machine.decoded
        self.index = machine.ip
        self.stack: list[Value | None] = with_unbound_method(machine.stack, *self.decoded.instructions[self.index])
        self.nulls = tuple(position for position, value in enumerate(self.stack) if value is None)
        self.handled = self._handled()

    def _handled(self) -> dict[int, Value]:
        """Positions that belong to the handling of exceptions, with the exception handled from there on."""
        positions = continuation.handled_positions(self.decoded, self.index)
        inner = [*(self.stack[position] for position in positions[1:]), self.machine.handled] if positions else []
        found: dict[int, Value] = {}
        for position, exception in zip(positions, inner, strict=True):
            if exception is None or exception.source is None:
                raise Handling("an exception of the captured program is being handled")
            found[position] = exception
        starts = any(block.target == self.index for block in self.decoded.blocks)
        if starts and getattr(self.stack[-1], "source", None) is None:
            raise Handling("an exception of the captured program is about to be handled")
        return found

    # -- the code --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Everything behind the graph call."""
        out, machine = self.out, self.machine
        name, arg = self.decoded.instructions[self.index]
        if name in SILENT and not machine.steps:
            raise NoBreak(f"there is nothing to be done for real at {name}")
        machine.effects.replay(out)
        self._prepare_slots()
        if name in SILENT:
            self._continue(self.index, [self._before(position) for position in range(len(self.stack))], self.nulls)
            return
        self._handle_exceptions()
        self._push_stack()
        block = self.decoded.block_at(self.index)
        failed = Label()
        attempt = TryBegin(failed, push_lasti=False, stack_depth=len(self.handled)) if block else None
        if attempt is not None:
            out.append(attempt)
        landings = self._instruction(name, arg)
        if attempt is not None:
            out.append(TryEnd(attempt))
        after = flow.effect(name, arg)
        if name not in encode.FINAL:
            self._leave(self.index + 1, len(self.stack) - after[0] + after[1], bool(after[1]))
        for target, items in landings:
            out.append(*items)
            popped, pushed = OPCODES[name].jumping or after
            self._leave(target, len(self.stack) - popped + pushed, bool(pushed))
        if block is not None:
            out.append(failed)
            out.emit("STORE_FAST", ".raised")
            self._stop_handling()
            loads = [self._before(position) for position in range(block.depth)]
            if block.lasti:
                loads.append(lambda: out.load_object(self.index))
            loads.append(lambda: out.emit("LOAD_FAST", ".raised"))
            self._continue(block.target, loads, [p for p in self.nulls if p < block.depth])

    def _prepare_slots(self) -> None:
        """Rebuild what the points are given while there is but one way through the code."""
        targets = [self.index, *flow.successors(self.decoded, self.index)]
        if (block := self.decoded.block_at(self.index)) is not None:
            targets.append(block.target)
        wanted = {slot for target in targets for slot in live(self.decoded)[target]}
        for slot in sorted(wanted):
            value = self.machine.slots[slot]
            if value is not None:
                self.out.prepare(value)

    def _handle_exceptions(self) -> None:
        for exception in self.handled.values():
            self.out.load(exception)
            self.out.emit("PUSH_EXC_INFO")
            self.out.pop()

    def _stop_handling(self) -> None:
        for _ in self.handled:
            self.out.emit("POP_EXCEPT")

    def _push_stack(self) -> None:
        for position, value in enumerate(self.stack):
            if position in self.handled:
                self.out.load_object(None)
            elif value is None:
                self.out.emit("PUSH_NULL")
            else:
                self.out.load(value)

    def _instruction(self, name: str, arg: Any) -> list[tuple[int, Sequence[encode.Item]]]:
        """The instruction itself; where it may jump to, and what stands there."""
        label = Label()
        jumps = name in encode.JUMPS
        location = InstrLocation._from_tuple(*self.decoded.position(self.index))
        for item in encode.instruction(name, label if jumps else arg, encode.slots_of(self.decoded.code)):
            if isinstance(item, Instr):
                item.location = location
            self.out.append(item)
        return [(arg, encode.landing(name, label))] if jumps else []

    def _leave(self, target: int, depth: int, pushed: bool) -> None:
        """Goes on at `target` with what is on the stack now."""
        out = self.out
        for position in reversed(range(depth)):
            out.emit("STORE_FAST", f".now_{position}")
        self._stop_handling()
        solid = depth - 1 if pushed else depth
        nulls = [position for position in self.nulls if position < solid]
        self._continue(target, [self._now(position) for position in range(depth)], nulls)

    def _now(self, position: int) -> Load:
        """Loads what is at a position of the stack after the instruction."""
        if position in self.handled:
            return self._before(position)
        return lambda: self.out.emit("LOAD_FAST", f".now_{position}")

    def _before(self, position: int) -> Load:
        """Loads what was there before it."""
        value = self.handled.get(position) or self.stack[position]
        return lambda: self.out.load(value)  # type: ignore[arg-type]

    # -- continuing ------------------------------------------------------------------------------------

    def _continue(self, target: int, stack: Sequence[Load], nulls: Iterable[int]) -> None:
        """Return the continuation at an instruction; `stack` has what loads each position."""
        out = self.out
        slots = {slot: value for slot in range(len(self.machine.slots)) if (value := self._slot(slot)) is not None}
        at = continuation.point(self.decoded, target, tuple(nulls), tuple(slots))
        names = self.decoded.slot_names
        cells = tuple(names[slot] for slot in at.slots if isinstance(slots[slot], CellValue))
        point = ResumePoint(self.machine.code, at, cells)
        loads = {continuation.stack_name(position): load for position, load in enumerate(stack)}
        out.start_call(lambda: out.load_object(Continuation))
        out.load_object(self.points.target(point, self.function))
        by_name = {names[slot]: slots[slot] for slot in at.slots}
        for name in point.names:
            if name in by_name:
                self._load_slot(by_name[name])
            else:
                loads[name]()
        out.build("tuple", len(point.names))
        out.finish_call(2)
        out.emit("RETURN_VALUE")

    def _slot(self, slot: int) -> Value | Source | None:
        """What is in a slot: a value, or the way to an argument that nobody has read."""
        waiting = self.machine.pending.get(slot)
        return self.machine.slots[slot] or (None if waiting is None else waiting[1])

    def _load_slot(self, held: Any) -> None:
        if hasattr(held, "reconstruct"):
            self.out.load(held)
        else:
            self.out.load_source(held)
