"""What names mean that a kernel does not define: those of its file, of functions around it, and Python's builtins.

A kernel sees modules, functions, classes, dtypes and constexprs; a number of the program may change without the kernel
being compiled again, so it is refused. What was read is kept with the kernel: if it changes, that is compiled anew.
Neighbours: `expressions.py` asks here, `calls.py` has what builtins mean, `stator.tile.jit` compares what was read.
"""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.generator import Generator, lift
from stator.tile.language.aggregates import jit_callable
from stator.tile.language.static import base_value, constexpr
from stator.tile.language.types import dtype

#: Builtins that stand for something of the language; `calls.py` fills it.
BUILTINS: dict[Any, Any] = {}
_SEEN = (ModuleType, jit_callable, dtype, constexpr, type, BuiltinFunctionType, FunctionType)


class ModuleNames:
    """The names of a module, as a source has those around a function."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def captured(self, name: str) -> Any:
        """What the name stands for now; KeyError if it is nothing."""
        if not hasattr(self.module, name):
            raise KeyError(name)
        return getattr(self.module, name)

    def places(self, name: str) -> tuple[Any, ...] | None:
        """As of a source."""
        return (vars(self.module),) if name in vars(self.module) else None


def of_module(g: Generator, module: ModuleType, name: str) -> Any:
    """What a module's name stands for; when a number or the like changes, the kernel is compiled again."""
    value = getattr(module, name)
    if callable(value) or isinstance(value, ModuleType):
        return value
    g.session.captured[ModuleNames(module), name] = value
    return lift(value)


def lookup(g: Generator, name: str) -> Any:
    """The value of a name that the kernel's function does not define."""
    try:
        value = g.source.captured(name)
    except KeyError:
        raise InvalidUse(f"{name} is not defined", _where(g, name)) from None
    if value is getattr(builtins, name, g):
        return BUILTINS.get(value, value)
    if _is_constexpr(g.source.function.__globals__.get("__annotations__", {}).get(name)):
        value = constexpr(value)
    if not isinstance(value, _SEEN) and not _is_field_tuple(value):
        what = "a variable of a function around it" if g.source.is_enclosed(name) else "a global variable"
        raise InvalidUse(
            f"{name} is {what}, and no constexpr: kernels see those that are known while compiling",
            f"pass it as an argument, or write `{name} = tl.constexpr({value!r})`"
            if isinstance(value, bool | int | float | str | None)
            else "pass it as an argument",
        )
    g.session.captured[g.source, name] = value
    return value if isinstance(value, base_value) else lift(value)


def _is_constexpr(annotation: Any) -> bool:
    return annotation is constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")


def _is_field_tuple(value: Any) -> bool:
    """A tuple of constexprs is as good as one."""
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(item, _SEEN) for item in value)


def _where(g: Generator, name: str) -> str:
    if name in g.source.function.__code__.co_varnames:
        return f"{name} is assigned further down, or in a branch that is not taken"
    return ""
