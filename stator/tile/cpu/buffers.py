"""Where buffers lie: those that are never needed at the same time share memory.

A buffer is needed from the first item that writes it to the last that reads it; what is read in a loop and written
before is needed until the loop ends. Neighbours: `schedule` makes buffers, `launch` gives programs their memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stator.tile.cpu.inlining import Inlining
from stator.tile.cpu.plan import Assign, Body, Buffer, Control, Item, Nest, Plan, Whole
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.types import Type

_ALIGNMENT = 64


def stored_bytes(type_: Type) -> int:
    """Bytes of a tile in a buffer: floats of 16 bits lie there as f32."""
    element = type_.element
    wide = getattr(element, "is_float", False) and element.itemsize == 2
    return type_.numel * (4 if wide else element.itemsize)


class _Lifetimes:
    """From when to when each buffer is needed, in positions of items."""

    def __init__(self, plan: Plan, inlining: Inlining) -> None:
        self.plan, self.inlining = plan, inlining
        self.now = 0
        self.spans: dict[Buffer, tuple[int, int]] = {}
        self.loops: list[int] = []
        self.body(plan.body)

    def touch(self, buffer: Buffer) -> None:
        first, last = self.spans.get(buffer, (self.now, self.now))
        self.spans[buffer] = (min(first, self.now), max(last, self.now))

    def body(self, body: Body) -> None:
        for item in body.items:
            self.now += 1
            for buffer in self.touched(item):
                self.touch(buffer)
            if isinstance(item, Control):
                self.control(item)
        self.now += 1
        for buffer in self.of(body.given):
            self.touch(buffer)

    def control(self, item: Control) -> None:
        start = self.now
        carried = [value for region in item.operation.regions for value in region.args]
        for buffer in self.of(carried):
            self.touch(buffer)
        before = set(self.spans)
        touched_before = dict(self.spans.items())
        for body in item.bodies:
            self.body(body)
        self.now += 1
        loops = item.operation.op != "if"
        for buffer, (first, last) in list(self.spans.items()):
            inside = last > start
            if loops and inside and buffer in before and touched_before[buffer][0] <= start:
                self.spans[buffer] = (first, max(last, self.now))
        for buffer in self.of([*carried, *item.operation.results]):
            self.touch(buffer)

    def touched(self, item: Item) -> Iterator[Buffer]:
        match item:
            case Nest(_, steps, _):
                for step in steps:
                    if isinstance(step, Assign):
                        yield step.buffer
                        yield from self.of([step.value])
                    else:
                        yield from self.of([*step.operands, *step.results])
            case Whole(operation) | Control(operation, _):
                yield from self.of([*operation.operands, *operation.results])
            case Operation():
                yield from self.of([*item.operands, *item.results])

    def of(self, values: Sequence[Value]) -> Iterator[Buffer]:
        for value in values:
            for source, _ in self.inlining.sources(value):
                if source in self.plan.buffers:
                    yield self.plan.buffers[source]


def place(plan: Plan, inlining: Inlining) -> None:
    """Gives every buffer its offset, the earliest that is free as long as it is needed."""
    spans = _Lifetimes(plan, inlining).spans
    placed: list[tuple[int, int, int, int]] = []  # first and last position, offset and end
    for buffer, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
        size = -(-stored_bytes(buffer.type) // _ALIGNMENT) * _ALIGNMENT
        taken = sorted((start, end) for a, b, start, end in placed if a <= last and first <= b)
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        buffer.offset = offset
        placed.append((first, last, offset, offset + size))
        plan.size = max(plan.size, offset + size)
