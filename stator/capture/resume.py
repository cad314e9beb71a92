"""ResumePoints: places in the middle of a function where a captured part may begin.

A point is a place in the original code together with what there is at this place: which positions of the stack hold
something, which slots are bound, which of them hold cells. Wherever and however a frame breaks, equal points are one,
so a loop with a break in its body has as many points as its body has breaks.
Invariant: the arguments of a point are `names`, in this order.
Neighbours: `breaks.py` (jumps to points), `root.py` (starts at them), `entry.py` (keeps what is compiled for each),
`bytecode/continuation.py` (what runs them uncaptured).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from bytecode import Bytecode, CompilerFlags, Instr

from stator import _native
from stator.bytecode import continuation
from stator.bytecode.decode import decode

SINCE_312 = sys.version_info >= (3, 12)
SINCE_313 = sys.version_info >= (3, 13)


class ResumePoint(NamedTuple):
    """Where a continuation starts, and what it is given."""

    code: CodeType
    at: continuation.Point
    #: Names of the arguments that are cells.
    cells: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments."""
        return continuation.parameters(decode(self.code), self.at)

    @property
    def handles(self) -> bool:
        """Whether an exception is being handled here."""
        return bool(continuation.handled_positions(decode(self.code), self.at.start))

    def function(self, namespace: dict[str, Any], qualname: str) -> FunctionType:
        """What goes on from here uncaptured; its parameters are `names`."""
        made = FunctionType(
            forwarding(ResumeFunction(self, namespace), self.code, self.names), namespace, self.code.co_name
        )
        made.__qualname__ = qualname
        return made


class ResumeFunction:
    """What goes on from a point, assembled when it is first called: most of it never is, and it may be long."""

    __slots__ = ("made", "namespace", "point")

    def __init__(self, point: ResumePoint, namespace: dict[str, Any]) -> None:
        self.point = point
        self.namespace = namespace
        self.made: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        made = self.made
        if made is None:
            decoded, at = decode(self.point.code), self.point.at
            code = continuation.assemble(decoded, at)
            _native.skip_code(code)  # it runs where a frame was already looked at
            made = self.made = continuation.function(decoded, at, self.namespace, code)
        return made(*args)


def forwarding(target: Callable[..., Any], code: CodeType, names: tuple[str, ...]) -> CodeType:
    """Code that passes its parameters, called `names`, to `target`."""
    null, function = Instr("PUSH_NULL"), Instr("LOAD_CONST", None)
    callee = [function, null] if SINCE_313 else [null, function]
    arguments = [Instr("LOAD_FAST", name) for name in names]
    call = [Instr("CALL", len(names))] if SINCE_312 else [Instr("PRECALL", len(names)), Instr("CALL", len(names))]
    made = Bytecode([Instr("RESUME", 0), *callee, *arguments, *call, Instr("RETURN_VALUE")])
    made.flags = CompilerFlags.OPTIMIZED | CompilerFlags.NEWLOCALS
    made.argcount, made.argnames = len(names), list(names)
    made.name, made.filename, made.first_lineno = code.co_name, code.co_filename, code.co_firstlineno
    for item in made:
        if isinstance(item, Instr):
            item.lineno = code.co_firstlineno
    finished = made.to_code()
    consts = tuple(target if const is None else const for const in finished.co_consts)
    return finished.replace(co_consts=consts)


class ResumePoints:
    """What continues at each point of the functions that one compiled function runs."""

    __slots__ = ("make", "table")

    def __init__(self, make: Callable[[ResumePoint, FunctionType, ResumePoints], Callable[..., Any]]) -> None:
        #: Makes the target for a new point of a function.
        self.make = make
        self.table: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def target(self, point: ResumePoint, function: FunctionType) -> Callable[..., Any]:
        """What to call with the arguments of a point of a function."""
        key = id(point.code), id(function.__globals__), point.at, point.cells
        found = self.table.get(key)
        if found is None:
            found = self.table.setdefault(key, self.make(point, function, self))
        return found

    def clear(self) -> None:
        """Forgets all."""
        self.table.clear()
