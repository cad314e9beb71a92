"""From a kernel's syntax tree to tile IR: the engine, whose tables of statements and expressions other files fill.

A `Generator` goes through one function's text with one scope of names; a call of another jit function makes another
generator that appends to the same block. Names stand for values of the language, or for Python's own modules, classes
and functions. Whatever goes wrong gets the place of the node that it went wrong at.
Neighbours: `statements.py`, `branches.py`, `loops.py`, `expressions.py`, `calls.py`; `kernel.py` begins.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stator.tile.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    InvalidUse,
    Place,
    UnsupportedLanguageConstruct,
)
from stator.tile.frontend.source import Source
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Module
from stator.tile.language.context import Context
from stator.tile.language.effects import StaticAssertion
from stator.tile.language.static import base_type, base_value, constexpr, unwrap
from stator.tile.language.types import tuple_type
from stator.tile.language.values import tensor, tuple, type_of


@dataclass(frozen=True, slots=True)
class Returned:
    """The statement was a return, or all its ways end in one."""

    value: Any


@dataclass(frozen=True, slots=True)
class Undefined:
    """What a name stands for that has no value here, and why."""

    why: str
    hint: str


@dataclass
class Session:
    """One kernel that is being compiled: its module, and which functions led to where it is."""

    module: Module
    context: Context
    generators: list[Generator] = field(default_factory=list)
    #: Functions that are not inlined: the function and the types of its arguments → what was made of it.
    functions: dict[Any, Any] = field(default_factory=dict)
    #: Functions that are being made, to refuse calls without end.
    open: set[Any] = field(default_factory=set)
    #: Names outside of functions that were read: the source that sees it, the name → its value.
    captured: dict[Any, Any] = field(default_factory=dict)


Statement: TypeAlias = Callable[..., "Returned | None"]
Expression: TypeAlias = Callable[["Generator", Any], Any]

STATEMENTS: dict[type[ast.stmt], Statement] = {}
EXPRESSIONS: dict[type[ast.expr], Expression] = {}
#: What kernels cannot use → why, or what instead.
REFUSED: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda; define a function with @triton.jit",
    ast.FunctionDef: "a function inside of a kernel; define it outside, with @triton.jit",
    ast.ClassDef: "a class inside of a kernel; define it outside",
    ast.Break: "break; carry a condition in a `while`, or mask what is left",
    ast.Continue: "continue; put the rest of the body into an `if`",
    ast.Try: "try",
    ast.Raise: "raise; use tl.device_assert or tl.static_assert",
    ast.With: "with",
    ast.Global: "global; a kernel does not change the program's variables",
    ast.Nonlocal: "nonlocal; a kernel does not change the program's variables",
    ast.Import: "import; import it in the file",
    ast.ImportFrom: "import; import it in the file",
    ast.Delete: "del",
    ast.Match: "match; use `if`",
    ast.Dict: "a dict; use a tuple",
    ast.Set: "a set; use a tuple",
    ast.DictComp: "a dict; use a tuple",
    ast.SetComp: "a set; use a tuple",
    ast.GeneratorExp: "a generator; use a list",
    ast.NamedExpr: ":=; assign in a line of its own",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
}


def statement(*kinds: type[ast.stmt]) -> Callable[[Statement], Statement]:
    """Registers who handles kinds of statements."""

    def register(handler: Statement) -> Statement:
        for kind in kinds:
            STATEMENTS[kind] = handler
        return handler

    return register


def expression(*kinds: type[ast.expr]) -> Callable[[Expression], Expression]:
    """Registers who handles kinds of expressions."""

    def register(handler: Expression) -> Expression:
        for kind in kinds:
            EXPRESSIONS[kind] = handler
        return handler

    return register


class Generator:
    """Goes through one function's text."""

    def __init__(self, session: Session, source: Source, builder: IRBuilder, scope: dict[str, Any]) -> None:
        self.session, self.source, self.builder, self.scope = session, source, builder, scope
        #: Names that are annotated as constexpr, which are assigned once.
        self.constants: set[str] = set()
        #: How many loops of the IR are around here: they have no return.
        self.loops = 0
        self.node: ast.AST = source.tree

    # ---- nodes

    def run(self, statements: Sequence[ast.stmt]) -> Returned | None:
        """Statements in order; what they return, if they do."""
        for position, item in enumerate(statements):
            returned = self._handle(STATEMENTS, item, statements[position + 1 :])
            if returned is not None:
                return returned
        return None

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression stands for."""
        return self._handle(EXPRESSIONS, node)

    def _handle(self, table: dict[Any, Callable[..., Any]], node: ast.AST, rest: Sequence[ast.stmt] = ()) -> Any:
        handler = table.get(type(node))
        if handler is None:
            what = REFUSED.get(type(node), type(node).__name__)
            raise self.unsupported(node, f"kernels cannot use {what}")
        around, self.node = self.node, node
        place, self.builder.location = self.builder.location, self.source.location(node)
        try:
            return handler(self, node, rest) if handler in TAKING_REST else handler(self, node)
        except (CompilationError, RecursionError):
            raise
        except Exception as error:  # whatever it was, it was this node's doing
            raise self.error(node, error) from error
        finally:
            self.node, self.builder.location = around, place

    # ---- errors

    def callers(self) -> list[Place]:
        """The calls that led here, the nearest first."""
        above = self.session.generators[: self.session.generators.index(self)]
        return [generator.source.place(generator.node) for generator in reversed(above)]

    def error(self, node: ast.AST, error: Exception) -> CompilationError:
        """An error with the place of a node."""
        place, callers = self.source.place(node), self.callers()
        match error:
            case StaticAssertion():
                return CompileTimeAssertionFailure(error.message, place, error.hint, callers)
            case InvalidUse():
                return CompilationError(error.message, place, error.hint, callers)
        return CompilationError(f"{type(error).__name__}: {error}", place, "", callers)

    def unsupported(self, node: ast.AST, what: str, hint: str = "") -> UnsupportedLanguageConstruct:
        """A refusal of a construct."""
        return UnsupportedLanguageConstruct(what, self.source.place(node), hint, self.callers())

    # ---- names

    def define(self, name: str, value: Any) -> None:
        """A name stands for a value from here on; the value's name in the IR is near to it."""
        if name in self.constants:
            raise InvalidUse(f"{name} is a constexpr, and is assigned once", "give the other value another name")
        self.scope[name] = value
        if isinstance(value, tensor) and value.handle.name.startswith("v") and value.handle.name[1:].isdigit():
            self.builder.rename(value.handle, ir_name(name))

    # ---- regions

    def block(self, types: Sequence[Any] = (), names: Sequence[str] = ()) -> Block:
        """An empty block for a region."""
        return self.builder.block_of(types, [ir_name(name) for name in names])


#: Handlers that go on with the statements behind their own.
TAKING_REST: set[Callable[..., Any]] = set()


def ir_name(name: str) -> str:
    """A name of a kernel as one of the IR, whose own keywords end in an underscore."""
    return f"{name.strip('_') or 'x'}"


def lift(value: Any) -> Any:
    """A value of Python's as kernels have it: numbers and texts are constexprs, tuples are the language's."""
    if isinstance(value, base_value):
        return value
    if isinstance(value, builtins.tuple | list):
        items = [lift(item) for item in value]
        fields = getattr(value, "_fields", None)
        return tuple(items, None if fields is None else tuple_type([type_of(i) for i in items], fields, type(value)))
    if value is None or isinstance(value, bool | int | float | str):
        return constexpr(value)
    return value


def is_known(value: Any) -> bool:
    """Whether a value is known while compiling."""
    if isinstance(value, tuple):
        return all(is_known(item) for item in value)
    return isinstance(value, constexpr) or not isinstance(value, base_value)


def plain(value: Any) -> Any:
    """The Python value of something that is known while compiling."""
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        named = value.type.made_by
        return named(*items) if value.type.fields is not None and named is not None else builtins.tuple(items)
    return unwrap(value)


def same_type(a: base_type, b: base_type) -> bool:
    return type(a) is type(b) and bool(a == b)
