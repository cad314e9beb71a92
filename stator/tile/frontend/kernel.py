"""From a kernel and the types of its arguments to a module of tile IR.

What a launch knows of an argument is one of three: a value that is known while compiling, a scalar or pointer of a type
with hints, or an aggregate of such (a tuple, a tensor descriptor).
Neighbours: `calls.generate` goes through the text; `stator.tile.jit` makes signatures of arguments and keeps modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stator.tile.errors import CompilationError
from stator.tile.frontend import branches, expressions, loops, statements
from stator.tile.frontend.calls import combine, generate, parameter_names
from stator.tile.frontend.generator import STATEMENTS, Session, ir_name
from stator.tile.frontend.source import Source
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.ir.core import Module
from stator.tile.ir.verify import verify
from stator.tile.language.context import NO_CHECKS, Checks, Context, entered
from stator.tile.language.static import base_type

#: The files that fill the tables of the generator.
PARTS = (branches, expressions, loops, statements)
assert STATEMENTS


@dataclass(frozen=True)
class Compiled:
    """A kernel as tile IR, and what of the program its text has seen."""

    module: Module
    name: str
    captured: dict[Any, Any] = field(repr=False)
    makes_pointers: bool = False

    def is_current(self) -> bool:
        """Whether the names that the text has seen still stand for the same."""
        for (source, name), value in self.captured.items():
            try:
                now = source.captured(name)
            except KeyError:
                return False
            if now is not value and not _equal(now, value):
                return False
        return True


def _equal(now: Any, before: Any) -> bool:
    now, before = getattr(now, "value", now), getattr(before, "value", before)
    return type(now) is type(before) and bool(now == before)


def compile_kernel(
    source: Source,
    types: Mapping[str, base_type],
    hints: Mapping[int, Mapping[str, Any]] | None = None,
    checks: Checks = NO_CHECKS,
) -> Compiled:
    """The module of a kernel whose parameters have these types; those of known values have no parameter in it.

    `hints` are by the position of the module's parameter.
    """
    module = Module()
    names = parameter_names(types)
    parameters = dict(zip(names, [each for type in types.values() for each in type.handle_types()], strict=True))
    function, builder = new_function(module, ir_name(source.name), parameters, (), source.location(source.tree))
    function.hints = {names[position]: dict(hint) for position, hint in (hints or {}).items()}
    handles = iter(function.params)
    scope = {name: type.assemble(handles) for name, type in types.items()}
    session = Session(module, Context(builder, call=lambda *_: None, checks=checks))
    session.context.call = combine(session)
    with entered(session.context):
        value = generate(session, source, builder, scope)
    _finish(source, builder, value)
    verify(module)
    return Compiled(module, function.name, session.captured, session.context.makes_pointers)


def _finish(source: Source, builder: IRBuilder, value: Any) -> None:
    if value is not None and getattr(value, "value", value) is not None:
        raise CompilationError(
            f"the kernel {source.name} returns {value}, and a kernel gives its results through pointers",
            source.place(source.tree),
        )
    builder.emit("return", [])
