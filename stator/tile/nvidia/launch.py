"""Runs a kernel on a GPU: loaded by the driver into PyTorch's context, launched on PyTorch's current stream.

A launch returns at once; what a kernel does wrong is told by whoever waits for it, as for PyTorch's own kernels.
Neighbours: `stages` compiles, `stator.targets.cuda.driver` talks to the driver, `stator.tile.jit` launches.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

from stator.targets.cuda import driver
from stator.tile.cpu.launch import parameter_format
from stator.tile.cpu.refused import Refused
from stator.tile.errors import LaunchError
from stator.tile.ir.core import Module
from stator.tile.nvidia import stages

#: Programs along each axis of a grid, at most.
_MOST = (2**31 - 1, 65535, 65535)
_PACKED_ADDRESS, _PACKED_BYTES = 1, 2


@functools.cache
def architecture(device: int) -> int:
    """`sm_` of a device."""
    import torch  # launches are of torch's tensors

    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@functools.cache
def most_shared(device: int) -> int:
    """The bytes of shared memory that a program may have."""
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


class Kernel:
    """A kernel on one device."""

    def __init__(self, module: Module, name: str, device: int) -> None:
        self.name, self.device = name, device
        asked = stages.Asked.on(module, name, architecture(device))
        made = stages.compiled(module, asked)
        if made.shared > most_shared(device):
            raise Refused(
                "shared memory", f"it takes {made.shared} bytes, and a program has {most_shared(device)} at most"
            )
        self.texts, self.shared, self.threads = made.texts, made.shared, made.warps * 32
        # Machine code runs on what is of its generation; for a later one the driver makes it of PTX.
        self.image = made.image if architecture(device) // 10 == asked.architecture // 10 else stages.for_driver(made)
        self._function, self._context = driver.load(self.image, name, made.shared, device)
        params = [param.type for param in module.functions[name].params]
        self._pack = struct.Struct("=" + "".join(map(parameter_format, params)))
        functions = driver.launching()
        self.entry = driver.refused, functions, self._function, self._context, self.threads, self.shared

    def run(self, numbers: Sequence[bool | int | float], grid: tuple[int, int, int]) -> None:
        """All programs of a grid, on the current stream."""
        if not all(grid):
            return
        if any(size > most for size, most in zip(grid, _MOST, strict=True)):
            raise LaunchError(f"a grid on a GPU is at most {_MOST}, not {grid}")
        status = _run(self, self._pack.pack(*numbers), grid)
        if status:
            driver.refused(self.name, status)


def _run(kernel: Kernel, packed: bytes, grid: tuple[int, int, int]) -> int:
    import torch

    library: Any = driver.library()
    size = ctypes.c_size_t(len(packed))
    buffer = ctypes.create_string_buffer(packed, max(len(packed), 1))
    extra = (ctypes.c_void_p * 5)(_PACKED_ADDRESS, ctypes.addressof(buffer), _PACKED_BYTES, ctypes.addressof(size), 0)
    stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(kernel.device))
    with driver.primary(kernel.device):
        return int(
            library.cuLaunchKernel(
                ctypes.c_void_p(kernel._function), *grid, kernel.threads, 1, 1, kernel.shared, stream, None, extra
            )
        )
