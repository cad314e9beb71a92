"""Builtins of our own: what a program puts into Python's `builtins` does not reach the modules of this package.

Our code runs in the middle of a program's calls (guards that fail, backward passes, new versions). A program that
replaces `len` means its own uses of it, which capture sees and guards; ours must go on to mean Python's. A module takes
its builtins from `__builtins__` in its globals when its body starts, so they are put there by whoever loads it.
Invariant: this is the first module of the package that is imported; only those before it have Python's.
"""

from __future__ import annotations

import builtins
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = __name__.partition(".")[0]

#: Python's builtins as they were when the package was imported.
ORIGINAL: dict[str, Any] = dict(vars(builtins))

#: Of these what programs put something else in place of without changing what libraries compute.
OUTWARD = {
    "print", "input", "open", "help", "breakpoint", "exit", "quit", "copyright", "credits", "license", "__import__",
}  # fmt: skip

#: What torch and other libraries compute with. They look it up where the program does.
COMPUTING = {name: found for name, found in ORIGINAL.items() if callable(found) and name not in OUTWARD}


def replaced() -> tuple[str, ...]:
    """The builtins that libraries compute with and that the program has put something else in place of."""
    now = vars(builtins)
    return tuple([name for name, found in COMPUTING.items() if now.get(name) is not found])


class Isolated(Loader):
    """Loads a module as another loader does, with builtins of its own."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = ORIGINAL
        self.loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # sources, resources, file names


class Finder(MetaPathFinder):
    """Finds the modules of this package where Python would."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(PACKAGE + "."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and spec.has_location and not name.endswith("._native"):
            spec.loader = Isolated(spec.loader)
        return spec


def install() -> None:
    """From now on the package's modules are loaded so."""
    sys.meta_path.insert(0, Finder())
