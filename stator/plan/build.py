"""From a schedule to a plan: where each buffer comes from, what is let go after which step, what may fail.

`make` decides nothing about kernels or memory, which the schedule has; it turns what names mean into steps. Results of
operators and outputs have memory of their own, intermediates are pieces of the arena, views in it are pieces too.
Neighbours: `loop/memory.py` (the memory plan), `loop/failing.py` (what may fail), `ir.py` (what comes out).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from stator.base.device import HOST
from stator.base.dtypes import ITEMSIZE, NBYTES
from stator.base.errors import Unsupported
from stator.loop.kernel import Call, Launch, Schedule
from stator.loop.kernel import Step as Scheduled
from stator.loop.memory import touched
from stator.loop.nest import Buffer, Extern, Geometry, Number, Text, View
from stator.plan import ir
from stator.sizes import Symbol, hint

#: Bytes from which on the memory of a result may be that of an earlier one (`csrc/results.c`): what allocators give
#: back to the system and ask for again.
LARGE = 512 << 10


def make(schedule: Schedule) -> ir.Plan:
    """What a call of the schedule runs."""
    return _Maker(schedule).plan()


class _Maker:
    """The plan under construction; pieces of the arena are declared as they are met."""

    __slots__ = ("aliases", "blocks", "names", "pieces", "schedule", "touched")

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.names = dict(zip(schedule.kernels, schedule.names, strict=True))
        self.pieces: dict[str, ir.Piece] = {}
        self.aliases = dict(schedule.memory.aliases)
        #: By step of the schedule, the buffers that it reads or writes.
        self.touched = [list(dict.fromkeys(touched(step))) for step in schedule.steps]
        #: With symbolic sizes: which block of the arena a buffer lies in.
        blocks = enumerate(schedule.memory.blocks) if schedule.symbols else ()
        self.blocks = {name: number for number, block in blocks for name in block.names}

    def plan(self) -> ir.Plan:
        schedule = self.schedule
        last = self._last_uses()
        steps, starts, unwritten = self._steps(last)
        results = tuple([self._argument(output) for output in schedule.outputs])  # may declare pieces
        blocks = [ir.Block(b.nbytes, b.first, b.last, b.names) for b in schedule.memory.blocks] if self.blocks else []
        arena = ir.Arena(schedule.memory.arena_bytes, tuple(self.pieces.values()), tuple(blocks))
        failure = schedule.failure
        spoiled = None if failure.spoiled is None else starts[failure.spoiled]
        return ir.Plan(
            schedule.name,
            schedule.place,
            tuple(self.names.values()),
            tuple([self._input(given) for given in _inputs(schedule)]),
            tuple(steps),
            results,
            self._reads((arena, tuple(steps), results)),
            tuple(last.get(-1, ())),
            arena,
            ir.Failure(unwritten, failure.kept, starts[failure.unsure], spoiled),
            tuple([(symbol.name, symbol.hint) for symbol in schedule.symbols]),
            tuple([ir.Effect(kind.value, name) for kind, name in schedule.effects]),
        )

    def _steps(self, last: dict[int, list[str]]) -> tuple[list[ir.Step], list[int], int]:
        """The steps, where in them those of the schedule start, and how many come before, for what none touches."""
        schedule = self.schedule
        allocated = set(schedule.memory.allocated)
        used = {name for names in self.touched for name in names}
        steps: list[ir.Step] = [self._allocation(schedule.buffers[name]) for name in sorted(allocated - used)]
        unwritten, starts = len(steps), []
        for number, step in enumerate(schedule.steps):
            starts.append(len(steps))
            for name in self.touched[number]:
                if name in allocated:
                    allocated.remove(name)
                    steps.append(self._fresh(name))
            steps.append(self._step(step, schedule.acts[number]))
            if dead := last.get(number):
                steps.append(ir.Release(tuple(dead)))
        return steps, [*starts, len(steps)], unwritten

    def _fresh(self, name: str) -> ir.Step:
        """The storage of a buffer that is not in the arena: its own, or that of an operand which dies in its step."""
        buffer = self.schedule.buffers[name]
        donor = self.aliases.get(name)
        given = self.schedule.buffers[donor] if donor is not None else buffer
        if donor is None or given.opaque or buffer.opaque:
            return self._allocation(buffer)
        same = (given.size, given.stride) == (buffer.size, buffer.stride)
        return ir.Reuse(name, donor, None if same else ir.Form(buffer.dtype, buffer.size, buffer.stride))

    def _allocation(self, buffer: Buffer) -> ir.Allocate:
        large = buffer.device == HOST and hint(buffer.nbytes) >= LARGE
        return ir.Allocate(buffer.name, _form(buffer.geometry), self._place(buffer), large)

    def _reads(self, parts: Any) -> tuple[ir.Read, ...]:
        """The symbols that parts of the plan have, and no input is."""
        if not self.schedule.symbols:
            return ()
        wanted = ir.symbols_in(parts)
        given = {number.name for number in self.schedule.numbers}
        return tuple([_read(s, self.schedule.inputs) for s in self.schedule.symbols if s.name in wanted - given])

    def _last_uses(self) -> dict[int, list[str]]:
        """Step number -> inputs and results of operators that nothing reads after it; -1 for those nothing reads."""
        schedule = self.schedule
        own = {buffer.name: -1 for buffer in schedule.inputs}
        own.update(dict.fromkeys((*schedule.memory.returned, *schedule.memory.allocated), -1))
        for number, names in enumerate(self.touched):
            for name in names:
                if name in own:
                    own[name] = number
        kept = {output.buffer for output in schedule.outputs if isinstance(output, View)} | set(schedule.mutated)
        last: dict[int, list[str]] = {}
        for name, number in own.items():
            if name not in kept and (number >= 0 or name not in schedule.memory.allocated):
                last.setdefault(number, []).append(name)
        return last

    # -- steps

    def _step(self, step: Scheduled, effects: tuple[int, ...]) -> ir.Step:
        if isinstance(step, Call):
            return self._invoke(step.extern, effects)
        assert isinstance(step, Launch)
        buffers = self.schedule.buffers
        moves = [pointer.offset * ITEMSIZE[buffers[pointer.buffer].dtype] for pointer in step.args]
        tensors = [self._whole(pointer.buffer) for pointer in step.args]
        written = [param.role != "in" for param in step.kernel.params]
        addresses = tuple([ir.Address(*parts) for parts in zip(tensors, moves, written, strict=True)])
        return ir.Launch(self.names[step.kernel], addresses, step.sizes, effects)

    def _invoke(self, extern: Extern, effects: tuple[int, ...]) -> ir.Invoke:
        args = tuple([self._argument(arg) for arg in extern.args])
        kwargs = tuple([(key, self._argument(value)) for key, value in extern.kwargs])
        if extern.out_target:
            (buffer,) = extern.outputs  # operators with several results make them
            into = ir.Into(extern.out_target, self._whole(buffer.name))
            return ir.Invoke(extern.target, args, kwargs, into=into, effects=effects)
        results = [
            ir.Result(position, buffer.name, buffer.geometry.size, buffer.geometry.stride, self._place(buffer))
            for position, buffer in zip(extern.taken, extern.outputs, strict=True)
        ]
        return ir.Invoke(extern.target, args, kwargs, tuple(results), effects=effects)

    def _argument(self, value: Any) -> ir.Argument:
        match value:
            case View():
                return self._view(value)
            case tuple() | list():
                return tuple([self._argument(item) for item in value])
            case Text():
                return str(value)
            case str() if value.startswith("torch."):
                return ir.Torch(value)
        return value

    # -- tensors

    def _place(self, buffer: Buffer) -> str:
        """The device of a buffer: the schedule's, of which the number is known, or another one."""
        return self.schedule.place if buffer.device == self.schedule.device else buffer.device

    def _input(self, given: Buffer | Number) -> ir.Input:
        if isinstance(given, Number):
            return ir.Input(given.name, None, number=given.value)
        return ir.Input(given.name, _form(given.geometry), self._place(given))

    def _whole(self, name: str) -> ir.Whole:
        """A buffer as it was declared."""
        if name in self.schedule.memory.offsets:
            buffer = self.schedule.buffers[name]
            self.pieces.setdefault(name, self._piece(name, buffer, buffer.geometry))
        return ir.Whole(name)

    def _view(self, view: View) -> ir.Tensor:
        """A view: a piece in the arena, made on the spot elsewhere."""
        buffer = self.schedule.buffers[view.buffer]
        geometry = view.geometry(buffer)
        if geometry == buffer.geometry:
            return self._whole(view.buffer)
        if view.buffer in self.schedule.memory.offsets:
            name = f"{view.buffer}_as_{'x'.join([re.sub(r'[^a-z0-9]', '_', str(n)) for n in geometry.size])}"
            while self.pieces.get(name, piece := self._piece(name, buffer, geometry)) != piece:
                name += "_"
            self.pieces[name] = piece
            return ir.Whole(name)
        turned = Geometry(geometry.dtype, geometry.size[::-1], geometry.stride[::-1])
        if len(geometry.size) == 2 and geometry.offset == 0 and turned == buffer.geometry:
            return ir.Turned(view.buffer)
        return ir.Reread(view.buffer, _form(geometry), geometry.offset, view.opaque != buffer.opaque)

    def _piece(self, name: str, buffer: Buffer, geometry: Geometry) -> ir.Piece:
        moved = geometry.offset * NBYTES[geometry.dtype]
        if self.blocks:
            return ir.Piece(name, _form(geometry), moved, self.blocks[buffer.name])
        return ir.Piece(name, _form(geometry), self.schedule.memory.offsets[buffer.name] + moved)


def _form(geometry: Geometry) -> ir.Form:
    return ir.Form(geometry.dtype, geometry.size, geometry.stride)


def _inputs(schedule: Schedule) -> list[Buffer | Number]:
    """All inputs in their order."""
    given: list[Buffer | Number] = list(schedule.inputs)
    for number in sorted(schedule.numbers, key=lambda number: number.position):
        given.insert(number.position, number)
    return given


def _read(symbol: Symbol, inputs: Iterable[Buffer]) -> ir.Read:
    """Where a symbol is in the geometry of the inputs."""
    for buffer in inputs:
        for what, extents in (("size", buffer.geometry.size), ("stride", buffer.geometry.stride)):
            if symbol.size in extents:
                return ir.Read(symbol.name, buffer.name, what, extents.index(symbol.size))
    raise Unsupported(f"the symbolic size {symbol.name}", "no input has it as a size or stride of its own")
