"""Whether a launch runs generated code: it does unless the kernel is refused, or code is not wanted.

What is refused is said once for each reason, in one line, and interpreted; under `STATOR_TILE_STRICT=1` it is an error.
`STATOR_TILE_CODE=0` interprets tile IR without a word. Without llvmlite there is no code, which is said once too.
Neighbours: `stator.tile.jit` asks; `launch` has the kernels.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from stator.tile.cpu.refused import Refused
from stator.tile.errors import CodeRefused, CodeWarning
from stator.tile.ir.core import Module

try:
    from stator.tile.cpu.launch import Kernel
    from stator.tile.nvidia.launch import Kernel as DeviceKernel
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != "llvmlite":
        raise
    HAS_LLVM = False
else:
    HAS_LLVM = True

_said: set[str] = set()


class MachineCode(Protocol):
    """A kernel that runs for all programs of a grid, on the numbers of its parameters."""

    def run(self, numbers: Sequence[bool | int | float], grid: tuple[int, int, int]) -> None: ...


@runtime_checkable
class OnDevice(Protocol):
    """Machine code that a device runs, with what a launch in C needs: see csrc/tiles.c."""

    entry: tuple[Any, ...]


def _switch(name: str, default: str) -> bool:
    return os.environ.get(name, default) not in ("", "0")


def code_of(module: Module, name: str) -> MachineCode | None:
    """A kernel's machine code, or None where it is interpreted."""
    if not _switch("STATOR_TILE_CODE", "1"):
        return None
    if not HAS_LLVM:
        _say(f"{name} is interpreted, slowly: code needs llvmlite (pip install llvmlite)")
        return None
    try:
        return Kernel(module, name)
    except Refused as refused:
        _say(f"{name} is interpreted, slowly: no code for {refused}")
        return None


def gpu_code_of(module: Module, name: str, device: int) -> MachineCode | None:
    """A kernel's machine code for a GPU; CodeRefused where there is none, for its tensors cannot be interpreted."""
    if not _switch("STATOR_TILE_CODE", "1"):
        return None
    if not HAS_LLVM:
        raise CodeRefused(f"{name} cannot run on a GPU: code needs llvmlite (pip install llvmlite)")
    try:
        return DeviceKernel(module, name, device)
    except Refused as refused:
        raise CodeRefused(f"{name} cannot run on a GPU: no code for {refused}") from refused


def _say(text: str) -> None:
    if _switch("STATOR_TILE_STRICT", "0"):
        raise CodeRefused(text)
    if text not in _said:
        _said.add(text)
        warnings.warn(text, CodeWarning, stacklevel=6)
