"""Decides which operations of a block share a loop nest, in which order nests run, and which values get a buffer.

Operations are put on levels. On a level first its scalars are computed, then its nests run, none of which needs another
one. An operation comes as early as what it needs allows; it joins the nest of its space there, if all that it needs of
that nest is the element that is just computed. Reads come behind the writes before them, writes behind the accesses
before them, but for this: a nest may read and write at once what is reached through different parameters, or by the
same pointers if no data decides them. (Overlaps of what one program reads and writes elsewhere are a race in Triton,
but for a barrier.)

What a loop carries lies in a buffer, which the operation that computes its next value writes in place if nobody reads
the old one later; otherwise it is copied at the end of the turn.
Neighbours: `plan` has what is made here; `buffers` says where buffers lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from stator.tile.cpu.inlining import VIEWS, Inlining
from stator.tile.cpu.plan import Assign, Body, Buffer, Control, Item, Nest, Plan, Whole
from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.types import F32, DType

#: Operations on tiles with loops of their own.
WHOLES = frozenset(["dot", "scan", "sort", "histogram", "print"])
CONTROL = frozenset(["if", "for", "while"])


class Read(NamedTuple):
    """Where a value is read: on which level, in which nest, and only there where the nest stands, or elsewhere too."""

    level: int
    user: object
    here: bool


class Access(NamedTuple):
    """A place where memory is read or written, and through which parameter."""

    level: int
    where: object
    writes: bool
    root: Value | None
    pointer: Value | None


@dataclass
class _Level:
    scalars: list[Item] = field(default_factory=list)
    nests: list[Item] = field(default_factory=list)


Place: TypeAlias = "tuple[int, object]"


class Scheduler:
    """What is decided for a whole function; blocks have a `_BlockScheduler` each."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.inlining = Inlining(function)
        self.buffers: dict[Value, Buffer] = {}
        self.names = {value.name for value in function.params}
        self._copies = 0

    def buffer(self, value: Value) -> Buffer:
        """That of a value, made when it is asked for first."""
        if value not in self.buffers:
            self.buffers[value] = Buffer(f"_{value.name}", value.type)
        return self.buffers[value]

    def copy(self, value: Value, location: object = None) -> Operation:
        """An operation that only gives a value another name; it is computed in a nest."""
        self._copies += 1
        result = Value(f"{value.name}.{self._copies}", value.type)
        return Operation("copy", (value,), {}, (result,))

    def widened(self, value: Value) -> Operation:
        """An operation that gives fp8 as f32."""
        self._copies += 1
        result = Value(f"{value.name}.{self._copies}", value.type.of(F32))
        return Operation("cast", (value,), {"dtype": F32, "rounding": "rtne"}, (result,))

    def plan(self) -> Plan:
        body = _BlockScheduler(self).run(self.function.body)
        return Plan(self.function, body, self.buffers, self.inlining.inline)


class _BlockScheduler:
    """The levels of one block."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.inlining = scheduler, scheduler.inlining
        self.levels: list[_Level] = []
        self.places: dict[Value, Place] = {}  # of values that are made in this block: the level, and the item
        self.reads: dict[Value, list[Read]] = {}
        self.accesses: list[Access] = []
        self.nests: dict[tuple[int, tuple[int, ...]], Nest] = {}

    def run(self, block: Block, carried: Sequence[Value] = (), into: Sequence[Buffer | None] = ()) -> Body:
        """The body of a block. What it gives goes `into` buffers; `carried` are the arguments that lie in these."""
        for operation in block.operations[:-1]:
            self.operation(operation)
        given = block.operations[-1].operands
        if into:
            self.give(given[-len(into) :], carried, into)
        items = [item for level in self.levels for item in (*level.scalars, *level.nests)]
        return Body(items, given)

    def level(self, number: int) -> _Level:
        while len(self.levels) <= number:
            self.levels.append(_Level())
        return self.levels[number]

    # ---- where an operation goes

    def operation(self, operation: Operation) -> None:
        op = operation.op
        tiles = [value for value in (*operation.operands, *operation.results) if not value.type.is_scalar]
        if op in CONTROL:
            self.control(operation)
        elif all(result in self.inlining.inline for result in operation.results) and operation.results:
            return
        elif op in WHOLES or (op in VIEWS | {"assert"} and tiles):
            self.whole(operation)
        elif not tiles:
            self.scalar(operation)
        else:
            self.member(operation)

    def sources(self, values: Sequence[Value]) -> Iterator[tuple[Value, bool]]:
        for value in values:
            yield from self.inlining.sources(value)

    def ready(self, values: Sequence[Value]) -> int:
        """The level on which all is known that values need, from the start of it."""
        level = 0
        for source, _ in self.sources(values):
            if source in self.places:
                at, item = self.places[source]
                level = max(level, at if isinstance(item, Operation) else at + 1)
        return level

    def note(self, values: Sequence[Value], level: int, user: object) -> None:
        for source, here in self.sources(values):
            self.reads.setdefault(source, []).append(Read(level, user, here))

    def scalar(self, operation: Operation) -> None:
        level = max(self.ready(operation.operands), self.after_accesses(operation, None, 0))
        self.level(level).scalars.append(operation)
        self.place(operation, level, operation)

    def place(self, operation: Operation, level: int, item: object) -> None:
        self.places.update(dict.fromkeys(operation.results, (level, item)))
        self.note(operation.operands, level, item)
        effects = OPERATORS[operation.op].effects if operation.op in OPERATORS else frozenset()
        if effects & {"reads", "writes", "fails", "syncs", "prints"}:
            writes = effects != {"reads"}
            pointer = operation.operands[0] if effects & {"reads", "writes"} else None
            root = None if pointer is None else self.inlining.root(pointer)
            self.accesses.append(Access(level, item, writes, root, pointer))

    def after_accesses(self, operation: Operation, nest: object, level: int) -> int:
        """The first level, from one on, where all accesses to memory before this one have been made."""
        effects = OPERATORS[operation.op].effects if operation.op in OPERATORS else frozenset()
        if not effects:
            return level
        writes, found = effects != {"reads"}, level
        pointer = operation.operands[0] if effects & {"reads", "writes"} else None
        for access in self.accesses:
            if not (writes or access.writes):
                continue
            scalars = nest is None and isinstance(access.where, Operation)
            early = nest is not None and isinstance(access.where, Operation)
            together = nest is not None and access.where is nest and not access.writes and self.apart(access, pointer)
            found = max(found, access.level + (0 if scalars or early or together else 1))
        return found

    def apart(self, access: Access, pointer: Value | None) -> bool:
        if pointer is None or access.pointer is None:
            return False
        root = self.inlining.root(pointer)
        alike = access.pointer is pointer and self.inlining.of_places(pointer)
        return alike or (root is not None and access.root is not None and root is not access.root)

    def member(self, operation: Operation) -> None:
        """Into the nest of its space, on the first level where that has all it needs."""
        shape = operation.operands[1 if operation.op == "gather" else 0].type.shape
        axis = operation.attrs["axis"] if operation.op == "reduce" else None
        elsewhere = operation.operands[:1] if operation.op == "gather" else ()
        reads = operation.operands[len(elsewhere) :]
        level = max(self.joining(reads, shape), self.ready(elsewhere))
        while True:
            nest = self.nests.get((level, shape))
            if nest is not None and axis is not None and nest.axis not in (None, axis):
                level += 1
                continue
            nest = nest or Nest(shape)
            least = max(self.after_accesses(operation, nest, level), self.joining(reads, shape, nest, level))
            if least == level:
                break
            level = least
        if (level, shape) not in self.nests:
            self.nests[(level, shape)] = nest
            self.level(level).nests.append(nest)
        nest.axis = axis if axis is not None else nest.axis
        nest.steps.append(operation)
        self.place(operation, level, nest)
        if operation.op == "reduce":
            for result in operation.results:
                if not result.type.is_scalar:
                    self.scheduler.buffer(result)
        self.keep(reads, nest)
        for source, _ in self.sources(elsewhere):
            self.reads.setdefault(source, []).append(Read(level, nest, here=False))
            self.target(source)

    def joining(self, values: Sequence[Value], shape: tuple[int, ...], nest: object = None, level: int = 0) -> int:
        """The first level where a nest of a space has values."""
        for source, here in self.sources(values):
            if source not in self.places:
                continue
            at, item = self.places[source]
            if isinstance(item, Operation):
                level = max(level, at)
            elif isinstance(item, Nest) and here and source.type.shape == shape and item.shape == shape:
                made = next(step for step in item.steps if isinstance(step, Operation) and source in step.results)
                same = made.op != "reduce" and (nest is None or item is nest or at < level)
                level = max(level, at if same else at + 1)
            else:
                level = max(level, at + 1)
        return level

    def keep(self, values: Sequence[Value], item: object) -> None:
        """Buffers for what is read elsewhere than in its own nest."""
        for source, here in self.sources(values):
            if source.type.is_scalar or source in self.scheduler.buffers:
                continue
            made = self.places.get(source, (0, None))[1]
            if made is not item or not here or not isinstance(item, Nest):
                self.scheduler.buffer(source)

    def whole(self, operation: Operation) -> None:
        if operation.op in ("dot", "sort", "scan", "histogram", "print", "assert"):
            operation = self.copied(operation)
        level = self.ready(operation.operands)
        level = self.after_accesses(operation, None, level)
        item = Whole(operation)
        self.level(level).nests.append(item)
        self.place(operation, level, item)
        self.keep(operation.operands, item)
        for result in operation.results:
            if not result.type.is_scalar:
                self.scheduler.buffer(result)

    def copied(self, operation: Operation) -> Operation:
        """The same operation on values that lie in buffers as they are."""
        operands = list(operation.operands)
        for number, operand in enumerate(operands):
            accumulates = operation.op == "dot" and number == 2
            element = operand.type.element
            if operation.op == "dot" and isinstance(element, DType) and element.is_fp8:
                wide = self.scheduler.widened(operand)
                self.member(wide)
                operands[number] = wide.result
            elif operand in self.inlining.inline and not accumulates and not operand.type.is_scalar:
                copy = self.scheduler.copy(operand)
                self.member(copy)
                operands[number] = copy.result
        return Operation(
            operation.op, tuple(operands), operation.attrs, operation.results, operation.regions, operation.location
        )

    # ---- control flow

    def control(self, operation: Operation) -> None:
        level = self.ready(self.inlining.used(operation))
        for other, content in enumerate(self.levels):
            if content.nests:
                level = max(level, other + 1)
        for access in self.accesses:
            level = max(level, access.level + (not isinstance(access.where, Operation)))
        match operation.op:
            case "for":
                bodies = self.loop(operation)
            case "while":
                bodies = self.while_(operation)
            case _:
                into = [self.target(result) for result in operation.results]
                bodies = [_BlockScheduler(self.scheduler).run(region, (), into) for region in operation.regions]
        item = Control(operation, bodies)
        level = max(level, len(self.levels) - 1 if self.levels and not self.levels[-1].nests else len(self.levels))
        self.level(level).nests.append(item)
        self.places.update(dict.fromkeys(operation.results, (level, item)))
        self.note(self.inlining.used(operation), level, item)
        self.keep(self.inlining.used(operation), item)
        effects = {effect for each in _inside(operation) for effect in OPERATORS[each.op].effects} - {"ends"}
        if effects:
            self.accesses.append(Access(level, item, effects != {"reads"}, None, None))

    def target(self, value: Value) -> Buffer | None:
        return None if value.type.is_scalar else self.scheduler.buffer(value)

    def start(self, values: Sequence[Value], buffers: Sequence[Buffer | None]) -> None:
        """Writes what a loop starts from."""
        for value, buffer in zip(values, buffers, strict=True):
            if buffer is not None:
                self.assign(buffer, value, self.joining([value], value.type.shape))

    def assign(self, buffer: Buffer, value: Value, level: int) -> None:
        shape = value.type.shape
        level = max(level, self.joining([value], shape))
        nest = self.nests.get((level, shape))
        if nest is None or self.joining([value], shape, nest, level) != level:
            level = self.joining([value], shape, nest, level) if nest is not None else level
            nest = self.nests.get((level, shape))
        if nest is None:
            nest = self.nests[(level, shape)] = Nest(shape)
            self.level(level).nests.append(nest)
        nest.steps.append(Assign(buffer, value))
        self.note([value], level, nest)
        self.keep([value], nest)

    def loop(self, operation: Operation) -> list[Body]:
        (region,) = operation.regions
        args = region.args[1:]
        into = [self.target(arg) for arg in args]
        self.start(operation.operands[3:], into)
        for result, buffer in zip(operation.results, into, strict=True):
            if buffer is not None:
                self.scheduler.buffers[result] = buffer
        return [_BlockScheduler(self.scheduler).run(region, args, into)]

    def while_(self, operation: Operation) -> list[Body]:
        test, body = operation.regions
        into = [self.target(arg) for arg in test.args]
        self.start(operation.operands, into)
        passed = test.operations[-1].operands[1:]
        targets: list[Buffer | None] = []
        for value, arg, result in zip(passed, body.args, operation.results, strict=True):
            buffer = self.scheduler.buffers.get(value) if value in test.args else self.target(arg)
            targets.append(buffer)
            if buffer is not None:
                self.scheduler.buffers[arg] = self.scheduler.buffers[result] = buffer
        first = _BlockScheduler(self.scheduler).run(test, test.args, targets)
        carried = [body.args[passed.index(arg)] if arg in passed else arg for arg in test.args]
        return [first, _BlockScheduler(self.scheduler).run(body, carried, into)]

    # ---- what a block gives

    def give(self, values: Sequence[Value], carried: Sequence[Value], into: Sequence[Buffer | None]) -> None:
        """Writes what a block gives into buffers, in place where it can be."""
        kept = []
        for value, buffer in zip(values, into, strict=True):
            moves = buffer is not None and self.scheduler.buffers.get(value) is not buffer
            if moves and {source for source, _ in self.inlining.sources(value)} & set(carried):
                copy = self.scheduler.copy(value)
                self.member(copy)
                kept.append(copy.result)
            else:
                kept.append(value)
        late = []
        for number, (value, buffer) in enumerate(zip(kept, into, strict=True)):
            if buffer is None or self.scheduler.buffers.get(value) is buffer:
                continue
            old = carried[number] if number < len(carried) else None
            if value in self.places and value not in self.inlining.inline and self.in_place(value, old, buffer):
                self.scheduler.buffers[value] = buffer
            else:
                late.append((buffer, value))
        final = len(self.levels)
        for buffer, value in late:
            self.assign(buffer, value, final)

    def in_place(self, value: Value, old: Value | None, buffer: Buffer) -> bool:
        """Whether what computes a value may write it where the carried one lies."""
        level, item = self.places[value]
        if isinstance(item, Control) or value.type.shape != buffer.type.shape:
            return False
        made = item.operation if isinstance(item, Whole) else _maker(item, value)
        if made is None or made.op in ("sort", "scan", "histogram") or (made.op == "reduce" and old is not None):
            return False
        if value in self.scheduler.buffers and any(other is buffer for other in self._kept_elsewhere(value)):
            return False
        if old is None:
            return True
        for read in self.reads.get(old, []):
            itself = read.user is item and (read.here and isinstance(item, Nest))
            if isinstance(item, Whole) and read.user is item and made.op == "dot":
                itself = made.operands[2] is old
            if read.level >= level and not itself:
                return False
        return not self._has_given(buffer)

    def _kept_elsewhere(self, value: Value) -> Iterator[Buffer]:
        """Buffers that are those of other results already: a value cannot be in two."""
        for other, buffer in self.scheduler.buffers.items():
            if other is value and any(buffer is b for v, b in self.scheduler.buffers.items() if v is not value):
                yield buffer

    def _has_given(self, buffer: Buffer) -> bool:
        return any(self.scheduler.buffers.get(value) is buffer for value in self.places)


def _maker(item: object, value: Value) -> Operation | None:
    if not isinstance(item, Nest):
        return None
    return next((step for step in item.steps if isinstance(step, Operation) and value in step.results), None)


def _inside(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        yield from region.walk()


def schedule(function: Function) -> Plan:
    """The plan of a prepared function."""
    for operation in function.body.walk():
        if operation.op == "inline_asm":
            raise Refused("inline_asm", "instructions of another target have no meaning here", operation.location)
    return Scheduler(function).plan()
