"""The package's own source as data, for the tests of this folder: modules, their imports, their functions.

Imports are read from the syntax tree, and told apart by when they run: at import, only for a type checker, or inside a
function. Names are resolved against the files, so `from stator.base import log` is an import of `stator.base.log`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stator.base import collector

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; `when` is "import", "typing" or "function"."""

    target: str
    line: int
    when: str


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the package."""

    name: str
    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @property
    def where(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def package(self) -> str:
        """The package it is in; a file at the top of the package is a package of its own."""
        return self.name.split(".")[1] if "." in self.name else "stator"

    def imports(self) -> list[Import]:
        return _imports_of(self.name)

    def functions(self) -> Iterator[tuple[str, int, int]]:
        """Name, first line and number of lines of every function."""
        for node in walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def python_files(*folders: str) -> list[Path]:
    """The project's Python files, in a stable order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def modules() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    found = {}
    with collector.stopped():  # trees are large, and stay
        for path in python_files("stator"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path, text, ast.parse(text, str(path)))
    return found


@functools.cache
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, which are listed once: several tests go over those of the whole package."""
    return tuple(ast.walk(tree))


@functools.cache
def _imports_of(name: str) -> list[Import]:
    return list(_imports(modules()[name].tree, "import", frozenset({*modules(), "stator._native"})))


def _imports(node: ast.AST, when: str, known: frozenset[str]) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, child.lineno, when) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    deeper = f"{module}.{alias.name}"
                    yield Import(deeper if deeper in known else module, child.lineno, when)
            case ast.ImportFrom():
                yield Import(".", child.lineno, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, "function", known)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=body):
                yield from _imports(ast.Module(body, []), "typing", known)
                yield from _imports(ast.Module(child.orelse, []), when, known)
            case _:
                yield from _imports(child, when, known)
