"""Kernels whose code for a GPU runs on the CPU, in place of machine code."""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stator.tile.cpu.launch import parameter_format
from stator.tile.ir.core import Module
from stator.tile.nvidia import assign, kernel, stages
from tests.tile.nvidia.machine import Machine

ARCHITECTURE = 90


def text_of(module: Module, name: str, architecture: int = ARCHITECTURE) -> kernel.Text:
    """A kernel's code for a GPU."""
    asked = stages.Asked.on(module, name, architecture)
    found = assign.assigned(module, asked)
    return kernel.write(found.function, found.layouts, asked.warps, architecture, found.kept, asked.registers)


def live_arrays() -> list[np.ndarray[Any, Any]]:
    """The memory of all tensors of the process."""
    found: dict[int, np.ndarray[Any, Any]] = {}
    for item in gc.get_objects():
        if type(item) in (torch.Tensor, torch.nn.Parameter) and item.layout == torch.strided and item.is_cpu:
            storage = item.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            if size:
                found[start] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
    return list(found.values())


class Kernel:
    """What launches use instead of machine code for the CPU."""

    def __init__(self, module: Module, name: str) -> None:
        self.text = text_of(module, name)
        params = [param.type for param in module.functions[name].params]
        self.pack = struct.Struct("=" + "".join(map(parameter_format, params)))

    def run(self, numbers: Sequence[bool | int | float], grid: tuple[int, int, int]) -> None:
        machine = Machine(self.text, live_arrays())
        words = np.frombuffer(self.pack.pack(*numbers), np.uint64)
        machine.run([int(word) for word in words], grid)
        print("".join(machine.printed), end="")


def code_of(module: Module, name: str) -> Any:
    """A kernel, and never None: what is refused fails."""
    return Kernel(module, name)
