"""The outermost frame of a conversion: where it starts, and after how many instructions it is to end.

A conversion starts at the beginning of a function, with its arguments, or at a `ResumePoint` in the middle of one, with
what was on the stack and in the slots there. The root counts its instructions, so that a conversion that meets a
refusal can be run again up to just before it. Invariant: the same number of steps gives the same state.
Neighbours: `machine.py` (runs it), `resume.py` (points), `frames.py` (makes and runs the root).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.base.errors import DataDependent, GraphBreak, Unsupported
from stator.bytecode import continuation
from stator.capture.machine import Machine, Session
from stator.capture.source import CellSource, ClosureSource, ConstSource, LocalSource, Source, StackSource
from stator.capture.value import Raised, Value
from stator.capture.values import build

if TYPE_CHECKING:
    from types import CodeType

    from stator.capture.resume import ResumePoint


class Stopped(Exception):
    """The root has run as many instructions as it was to."""


class RootFunction:
    """The outermost function as the machine sees it: its cells are reached by name."""

    def __init__(self, function: types.FunctionType, code: CodeType) -> None:
        self.function = function
        self.code = code
        self.globals = function.__globals__
        self.qualname = function.__qualname__

    def default(self, tx: Machine, position: int) -> Value | None:
        return None

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        return None

    def closure_cell(self, tx: Machine, index: int) -> Value:
        closure = self.function.__closure__
        assert closure is not None
        cell = closure[index]
        found = tx.values.get(id(cell))
        if found is None:
            contents = ClosureSource(self.code.co_freevars[index])
            found = tx.values[id(cell)] = build.make_cell(None, cell, ConstSource(cell), contents)
        return found


class RootMachine(Machine):
    """The outermost frame."""

    __slots__ = ("steps", "stop_at")

    def __init__(self, session: Session, function: types.FunctionType, code: CodeType, stop_at: int | None) -> None:
        super().__init__(session, code, RootFunction(function, code), [], None)
        #: How many instructions have been started.
        self.steps = 0
        self.stop_at = -1 if stop_at is None else stop_at

    def start(self, arguments: list[Any]) -> None:
        """At the beginning; arguments become values when they are first read."""
        names = self.decoded.slot_names
        for slot, argument in enumerate(arguments):
            self.pending[slot] = argument, LocalSource(names[slot])

    def start_at(self, point: ResumePoint, arguments: list[Any]) -> None:
        """At a point, with what its names stand for."""
        given = dict(zip(point.names, arguments, strict=True))
        index = self.ip = point.at.start
        for position in range(continuation.depth(self.decoded, index)):
            name = continuation.stack_name(position)
            source = StackSource(name, point.code, index, position)
            self.stack.append(self.argument(given[name], source) if name in given else None)
        for slot in point.at.slots:
            name = self.decoded.slot_names[slot]
            if name in point.cells:
                self.slots[slot] = self.cell_argument(given[name], LocalSource(name))
            else:
                self.pending[slot] = given[name], LocalSource(name)

    def argument(self, obj: Any, source: Source) -> Value:
        """What was on the stack."""
        if type(obj) is types.CellType:
            return self.cell_argument(obj, source)
        return self.build.wrap(self, obj, source)

    def iterates_argument(self) -> bool:
        """Whether it stands at a loop over an iterator that it was given."""
        name, _ = self.decoded.instructions[self.ip - 1]
        source = self.stack[-1].source if self.stack and self.stack[-1] is not None else None
        return name == "FOR_ITER" and isinstance(source, LocalSource)

    def cell_argument(self, cell: types.CellType, source: Source) -> Value:
        """A cell of the frame, which each call has anew."""
        found = self.values.get(id(cell))
        if found is None:
            found = self.values[id(cell)] = build.make_cell(None, cell, source, CellSource(source))
        return found

    def _run(self) -> Value:
        # The loop of `Machine`, which counts instructions too: frames below the root are spared that.
        program, graph = self.program, self.graph
        while True:
            try:
                while True:
                    if self.steps == self.stop_at:
                        raise Stopped
                    graph.step = self.steps
                    self.steps += 1
                    index = self.ip
                    self.ip = index + 1
                    handler, arg = program[index]
                    result = handler(self, arg)
                    if result is not None:
                        return result
            except Raised as raised:
                self.unwind(raised)
            except (GraphBreak, DataDependent, Unsupported) as stop:
                if stop.location is None:
                    stop.location = self.location()
                raise

    def unwind(self, raised: Raised) -> None:
        try:
            super().unwind(raised)
        except GraphBreak as stop:
            stop.location = self.location()
            raise
