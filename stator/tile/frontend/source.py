"""The text of a function of a program: its syntax tree, where in its file each node stands, and what it can see.

A function's text is read once. Lines and columns are those of the file, though the tree is of the function alone.
Neighbours: `generator.py` and `direct.py` go through the tree; `stator.tile.errors` prints places.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stator.tile.errors import CompilationError, Place
from stator.tile.ir.core import Location

_ABSENT = object()


@dataclass(frozen=True, eq=False)
class Source:
    """One function's text."""

    function: Callable[..., Any]
    file: str
    lines: tuple[str, ...]
    first_line: int
    indent: int
    tree: ast.FunctionDef

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def text(self) -> str:
        """As it stands in the file."""
        return "".join(self.lines)

    @property
    def parameters(self) -> list[str]:
        return [arg.arg for arg in (*self.tree.args.posonlyargs, *self.tree.args.args, *self.tree.args.kwonlyargs)]

    def location(self, node: ast.AST) -> Location:
        """Where a node stands in the file."""
        line = getattr(node, "lineno", self.tree.lineno)
        return Location(self.file, self.first_line + line - 1, getattr(node, "col_offset", 0) + self.indent)

    def place(self, node: ast.AST) -> Place:
        """The same, with the line itself."""
        file, line, column = self.location(node)
        offset = line - self.first_line
        text = self.lines[offset].rstrip("\n") if 0 <= offset < len(self.lines) else ""
        return Place(file, line, column, text, self.name)

    def captured(self, name: str) -> Any:
        """What a name that the function does not define stands for; KeyError if it is nothing."""
        found = self.enclosed(name)
        if found is not _ABSENT:
            return found
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return vars(builtins)[name]

    def enclosed(self, name: str) -> Any:
        """The value of a variable of a function around this one."""
        names = self.function.__code__.co_freevars
        if name not in names:
            return _ABSENT
        try:
            return (self.function.__closure__ or ())[names.index(name)].cell_contents
        except ValueError:  # it is not assigned yet
            return _ABSENT

    def places(self, name: str) -> tuple[Any, ...] | None:
        """Where the name is looked for: the variable's cell, or dicts, the last of which has it; None if nowhere."""
        if self.is_enclosed(name):
            return ((self.function.__closure__ or ())[self.function.__code__.co_freevars.index(name)],)
        names = self.function.__globals__
        return (names,) if name in names else (names, vars(builtins)) if name in vars(builtins) else None

    def is_enclosed(self, name: str) -> bool:
        return self.enclosed(name) is not _ABSENT


def read(function: Callable[..., Any]) -> Source:
    """The text of a function; `CompilationError` if there is none to read."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise CompilationError(
            f"the source of {getattr(function, '__name__', function)!r} cannot be read: {error}",
            hint="a kernel is compiled from its text: define it in a file",
        ) from error
    text = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(text.split("\n", 1)[0]) - 1
    tree = ast.parse(text).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise CompilationError(
            f"{getattr(function, '__name__', function)!r} is not defined by `def`",
            hint="lambdas and async functions are no kernels",
        )
    return Source(function, inspect.getfile(function), tuple(lines), first, max(indent, 0), tree)
