"""Layouts of a kernel's tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stator.tile.cpu.prepare import prepare
from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Function, Module, Value
from stator.tile.ir.text import function_text
from stator.tile.nvidia.places import Places, spread


class Wanted(Protocol):
    """What a kernel is compiled for."""

    @property
    def name(self) -> str: ...
    @property
    def warps(self) -> int: ...


@dataclass(frozen=True)
class Assigned:
    """A function of tile IR whose tiles have layouts."""

    function: Function
    layouts: Callable[[Value], Places]
    text: str
    kept: int = 0


def assigned(module: Module, asked: Wanted) -> Assigned:
    function = prepare(module, asked.name)
    for o in function.body.walk():
        for value in o.results:
            if any(size & (size - 1) for size in value.type.shape):
                raise Refused(o.op, f"{value.type} has a size that is no power of 2", o.location)
    return Assigned(function, lambda value: spread(asked.warps, value.type.shape), function_text(function))
