"""The rest of a function from one of its instructions on, as a function of its own.

A `Point` says where a function goes on and with what: which positions of the stack are NULL, which slots are bound.
`assemble` gives code whose parameters are that state: a prologue restores slots, stack and handled exceptions, then
jumps into the original instructions. Invariant: with the original's state at this point, it does what the original
would have done from there. Cells arrive as cell objects; free variables are the closure. A handled exception is passed
in the position that PUSH_EXC_INFO used, which otherwise holds the one that was handled before. Neighbours: `encode.py`,
`flow.py` (the stack there), `liveness.py` (the slots that matter).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from bytecode import Bytecode, CompilerFlags, Instr, Label
from bytecode.instr import CellVar

from stator.base.errors import Unsupported
from stator.bytecode import flow
from stator.bytecode.encode import Item, body, slots_of
from stator.bytecode.instructions import Decoded
from stator.bytecode.liveness import live

#: Frames that are suspended belong to an object, which a continuation cannot be.
SUSPENDED = CompilerFlags.GENERATOR | CompilerFlags.COROUTINE | CompilerFlags.ASYNC_GENERATOR

#: Arguments are passed one by one.
VARIADIC = CompilerFlags.VARARGS | CompilerFlags.VARKEYWORDS


class Point(NamedTuple):
    """Where a function goes on, and which parts of its state there are; it has copied its closure before."""

    start: int
    #: Positions of the stack, from the bottom, that are NULL.
    nulls: frozenset[int]
    #: Slots that are passed, in their order: those that are bound and live.
    slots: tuple[int, ...]


def point(decoded: Decoded, index: int, nulls: Sequence[int], bound: Sequence[int]) -> Point:
    """The point at `index`, for a stack with NULL in the positions `nulls` and values in the slots `bound`."""
    wanted = live(decoded)[index]
    handled = handled_positions(decoded, index)
    return Point(index, frozenset(nulls).difference(handled), tuple(sorted(wanted.intersection(bound))))


def depth(decoded: Decoded, index: int) -> int:
    """How many items the stack has before an instruction."""
    return len(_layout(decoded, index))


def handled_positions(decoded: Decoded, index: int) -> tuple[int, ...]:
    """The positions of the stack that PUSH_EXC_INFO has put there, the outermost first.

    A continuation wants in each the exception that is being handled inside: for the last one the frame's, for the
    others what stands in the next.
    """
    return tuple(position for position, kind in enumerate(_layout(decoded, index)) if kind == flow.HANDLED)


def _layout(decoded: Decoded, index: int) -> flow.Layout:
    layout = flow.layouts(decoded)[index]
    assert layout is not None, f"instruction {index} is never reached"
    return layout


def stack_name(position: int) -> str:
    """The parameter for a position of the stack."""
    return f".s{position}"


def parameters(decoded: Decoded, at: Point) -> tuple[str, ...]:
    """Names of what a continuation is given, in order: own slots, the stack, then cells of free variables."""
    return (*_own(decoded, at), *_stack(decoded, at), *(decoded.slot_names[slot] for slot in _free(decoded, at)))


def _own(decoded: Decoded, at: Point) -> list[str]:
    first_free = len(decoded.slot_names) - len(decoded.code.co_freevars)
    return [decoded.slot_names[slot] for slot in at.slots if slot < first_free]


def _free(decoded: Decoded, at: Point) -> list[int]:
    first_free = len(decoded.slot_names) - len(decoded.code.co_freevars)
    return [slot for slot in at.slots if slot >= first_free]


def _stack(decoded: Decoded, at: Point) -> list[str]:
    return [stack_name(position) for position in range(depth(decoded, at.start)) if position not in at.nulls]


def function(
    decoded: Decoded, at: Point, namespace: dict[str, Any], code: CodeType | None = None
) -> Callable[..., Any]:
    """What runs the original from a point on, called with `parameters`; `code` is what `assemble` gives."""
    code = code or assemble(decoded, at)
    name = decoded.code.co_name
    if not code.co_freevars:
        return FunctionType(code, namespace, name)
    free = _free(decoded, at)
    first_free = len(decoded.slot_names) - len(code.co_freevars)
    own = len(_own(decoded, at)) + len(_stack(decoded, at))
    given = {slot: own + number for number, slot in enumerate(free)}
    order = [given.get(first_free + number) for number in range(len(code.co_freevars))]

    def enter(*args: Any) -> Any:
        # Free variables that nobody reads any more have not been passed.
        closure = tuple(CellType() if number is None else args[number] for number in order)
        return FunctionType(code, namespace, name, None, closure)(*args[:own])

    return enter


def assemble(decoded: Decoded, at: Point) -> CodeType:
    """Code that runs the original from a point on; takes `parameters`, but for the cells of free variables."""
    code = decoded.code
    if CompilerFlags(code.co_flags) & SUSPENDED:
        raise Unsupported(code.co_qualname, "a generator cannot go on in another frame")
    given = (*_own(decoded, at), *_stack(decoded, at))
    encoded = body(decoded, slots_of(code))
    prologue = [*_enter(code), *_restore_stack(decoded, at), Instr("JUMP_FORWARD", encoded.labels[at.start])]
    line = decoded.position(at.start).line or code.co_firstlineno
    for item in prologue:
        if isinstance(item, Instr):
            item.lineno = line
    made = Bytecode([*prologue, *encoded.items])
    made.argcount = made.posonlyargcount = len(given)
    # Cells that are passed share the slot of the parameter; naming all locals keeps their order.
    made.argnames = [*given, *(name for name in code.co_varnames if name not in given)]
    made.cellvars, made.freevars = list(code.co_cellvars), list(code.co_freevars)
    made.flags = CompilerFlags(code.co_flags) & ~VARIADIC
    made.name, made.filename, made.first_lineno = code.co_name, code.co_filename, code.co_firstlineno
    # The encoding may need more than the original did: NULL pushed on its own, a value copied before it is tested.
    finished = made.to_code(stacksize=code.co_stacksize + 4, compute_exception_stack_depths=False)
    return finished.replace(co_qualname=code.co_qualname)


def _enter(code: CodeType) -> list[Item]:
    """What a frame starts with; cells have been made, and `locals()` looks whether there is an instruction for that."""
    items: list[Item] = []
    if code.co_freevars:
        items.append(Instr("COPY_FREE_VARS", len(code.co_freevars)))
    items.append(Instr("RESUME", 0))
    if code.co_cellvars:
        behind = Label()
        made = [Instr("MAKE_CELL", CellVar(name)) for name in code.co_cellvars]
        items += [Instr("JUMP_FORWARD", behind), *made, behind]
    return items


def _restore_stack(decoded: Decoded, at: Point) -> list[Item]:
    items: list[Item] = []
    for position, kind in enumerate(_layout(decoded, at.start)):
        if position in at.nulls:
            items.append(Instr("PUSH_NULL"))
            continue
        name = stack_name(position)
        items += [Instr("LOAD_FAST", name), Instr("DELETE_FAST", name)]
        if kind == flow.HANDLED:
            items += [Instr("PUSH_EXC_INFO"), Instr("POP_TOP")]
    return items
