"""From tile IR to that with layouts, by the passes of `stator.tile.gpu`, and the layouts as a thread's code wants them.

Neighbours: `stages` keeps the text; `writer` goes through the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stator.tile.cpu.refused import Refused
from stator.tile.gpu.assign import Unplaced
from stator.tile.gpu.operators import text
from stator.tile.gpu.pipeline import lower
from stator.tile.ir.core import Function, Module, Value
from stator.tile.layouts.linear import Layout
from stator.tile.nvidia.places import Places


class Wanted(Protocol):
    """What a kernel is compiled for."""

    @property
    def name(self) -> str: ...
    @property
    def warps(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def group_registers(self) -> int: ...
    @property
    def most_shared(self) -> int: ...


@dataclass(frozen=True)
class Assigned:
    """A function of tile IR with layouts, its text, and the shared memory that passes have placed, in bytes."""

    function: Function
    layouts: Callable[[Value], Places]
    text: str
    kept: int = 0


def places_of(value: Value) -> Places:
    """The layout of a tile in numbers of elements."""
    layout = value.type.layout
    assert isinstance(layout, Layout), f"{value} has no layout of threads"
    registers, lanes = len(layout.register), len(layout.register) + len(layout.lane)
    columns = layout.columns
    return Places(layout.shape, columns[:registers], columns[registers:lanes], columns[lanes:])


def assigned(module: Module, asked: Wanted) -> Assigned:
    """The kernel of a module with layouts; Refused where there are none for it."""
    try:
        lowered = lower(module, asked.name, asked.warps, asked.stages, group_registers=asked.group_registers)
        if asked.group_registers and lowered.functions[asked.name].attrs["shared"] > asked.most_shared:
            lowered = lower(module, asked.name, asked.warps, asked.stages)  # whose operands stay in registers
    except Unplaced as error:
        raise Refused("layout", str(error), module.functions[asked.name].location) from error
    return read(lowered, asked.name)


def read(lowered: Module, name: str) -> Assigned:
    """The same of a module that has layouts already."""
    function = lowered.functions[name]
    return Assigned(function, places_of, text(lowered), function.attrs["shared"])
