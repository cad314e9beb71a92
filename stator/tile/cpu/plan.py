"""The loop form of a kernel: what `schedule` decides and `kernel` writes; its text is the `.tlir` of golden files.

    plan    = buffer …, body
    buffer  = NAME: type @ offset                  memory of the program for a tile that more than one nest needs
    body    = item …                               one after the other
    item    = operation                            on scalars
            | nest [16, 64] (along 1): step …      loops over a space, the elements of its last axis in vectors
            | whole: operation                     one that has loops of its own: dot, scan, sort, …
            | operation, its regions as bodies     if, for, while
    step    = operation | BUFFER = value           of each element of the space

A value that is not in a nest and has no buffer is computed from its operands wherever it is used (`inline`): positions,
pointers, masks, and tiles that are others seen in another shape. A nest that reduces does so along one axis.
Neighbours: `schedule` makes plans, `buffers` places what lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.text import operation_text
from stator.tile.ir.types import Type


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory for a tile, row-major; where in the memory of the program it lies is decided last."""

    name: str
    type: Type
    offset: int = -1


@dataclass(eq=False, slots=True)
class Assign:
    """A value is written to a buffer, element by element."""

    buffer: Buffer
    value: Value


Step: TypeAlias = "Operation | Assign"


@dataclass(eq=False, slots=True)
class Nest:
    """Loops over a space; `axis` is the one along which it reduces."""

    shape: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)
    axis: int | None = None


@dataclass(eq=False, slots=True)
class Whole:
    """An operation that has loops of its own."""

    operation: Operation


@dataclass(eq=False, slots=True)
class Control:
    """`if`, `for` or `while`, with the bodies of its regions."""

    operation: Operation
    bodies: list[Body]


@dataclass(eq=False, slots=True)
class Body:
    """Items in order, and what the terminator gives."""

    items: list[Item] = field(default_factory=list)
    given: tuple[Value, ...] = ()


Item: TypeAlias = "Operation | Nest | Whole | Control"


@dataclass(eq=False, slots=True)
class Plan:
    """Everything that is decided of a function."""

    function: Function
    body: Body
    buffers: dict[Value, Buffer]
    inline: dict[Value, Operation]
    size: int = 0


def plan_text(plan: Plan) -> str:
    """The text of a plan."""
    seen = {id(buffer): buffer for buffer in plan.buffers.values()}
    lines = [f"{buffer.name}: {buffer.type} @ {buffer.offset}" for buffer in seen.values()]
    head = f"plan {plan.function.name}, {plan.size} bytes"
    return "\n".join([head, *[f"    {line}" for line in [*lines, *_body(plan.body, plan)]]]) + "\n"


def _body(body: Body, plan: Plan) -> Iterator[str]:
    for item in body.items:
        match item:
            case Nest(shape, steps, axis):
                yield f"nest {list(shape)}{'' if axis is None else f' along {axis}'}:"
                for step in steps:
                    yield from (f"    {line}" for line in _step(step, plan))
            case Whole(operation):
                yield f"whole: {_operation(operation, plan)}"
            case Control(operation, bodies):
                yield operation_text(operation)
                for region, inner in zip(operation.regions, bodies, strict=True):
                    yield f"def ({', '.join([arg.name for arg in region.args])}):"
                    yield from (f"    {line}" for line in _body(inner, plan))
            case Operation():
                yield operation_text(item)
    yield f"give {', '.join([value.name for value in body.given])}".rstrip()


def _step(step: Step, plan: Plan) -> Iterator[str]:
    match step:
        case Assign(buffer, value):
            yield f"{buffer.name} = {value.name}"
        case Operation():
            yield _operation(step, plan)


def _operation(operation: Operation, plan: Plan) -> str:
    kept = [f" → {plan.buffers[result].name}" for result in operation.results if result in plan.buffers]
    if operation.op == "copy":
        text = f"{operation.result.name}: {operation.result.type} = copy({operation.operands[0].name})"
    else:
        text = operation_text(operation)
    return text + "".join(kept)
