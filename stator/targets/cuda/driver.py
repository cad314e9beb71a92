"""The driver of the device, called by name: what loads a binary, and the addresses of what launches from C.

Binaries are loaded into the primary context of a device, which is PyTorch's, whatever context is current. What the
driver refuses is raised under its own name of the error; where it tells of an error that a kernel made earlier, PyTorch
is asked first, for that is what eager raises there.
Neighbours: `toolchain.py` asks for both, `csrc/device.c` launches.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"
#: Of a function: the bytes of shared memory that a launch may ask for, and how many it may always ask for.
MAX_DYNAMIC_SHARED, SHARED_BYTES = 8, 48 << 10
OUT_OF_MEMORY = 2


class DriverError(RuntimeError):
    """The driver refused a call, with its name of the error."""

    def __init__(self, status: int, what: str) -> None:
        self.status = status
        super().__init__(f"{error_name(status)} ({status}) where {what}")


@cache
def library() -> ctypes.CDLL:
    """The driver; NotImplementedError where there is none."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NotImplementedError(f"kernels cannot be launched: {error}") from error


def error_name(status: int) -> str:
    """The driver's name of an error."""
    name = ctypes.c_char_p()
    if library().cuGetErrorName(status, ctypes.byref(name)) or name.value is None:
        return "an unknown error of the driver"
    return name.value.decode()


def load(image: bytes, name: str, shared: int, device: int) -> tuple[int, int]:
    """The function of a binary, which may ask for so much shared memory, and the context that it is loaded in.

    It stays loaded as long as the process lives. DriverError where the driver refuses it.
    """
    try:
        return _load(image, name, shared, device)
    except DriverError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        import torch  # the package itself does not need torch

        torch.cuda.empty_cache()  # PyTorch keeps memory that nobody uses
        return _load(image, name, shared, device)


def _load(image: bytes, name: str, shared: int, device: int) -> tuple[int, int]:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with primary(device) as context:
        call("cuModuleLoadData", ctypes.byref(module), image, what=f"{name} was loaded")
        call("cuModuleGetFunction", ctypes.byref(function), module, name.encode(), what=f"{name} was looked for")
        if shared > SHARED_BYTES:
            what = f"{name} asks for {shared} bytes of shared memory"
            call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, shared, what=what)
    return function.value or 0, context


@contextmanager
def primary(device: int) -> Iterator[int]:
    """The primary context of a device is current meanwhile."""
    context, before = _context(device), ctypes.c_void_p()
    call("cuCtxPushCurrent_v2", ctypes.c_void_p(context), what="a context was made current")
    try:
        yield context
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(before), what="a context was put back")


@cache
def _context(device: int) -> int:
    """The primary context of a device, which is kept from now on."""
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0, what="the driver was started")
    call("cuDeviceGet", ctypes.byref(handle), device, what=f"device {device} was looked for")
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle, what=f"device {device} was opened")
    return context.value or 0


def call(function: str, *args: Any, what: str) -> None:
    """Call a function of the driver; DriverError where it refuses, which names what was done."""
    status = getattr(library(), function)(*args)
    if status:
        raise DriverError(status, what)


def refused(name: str, status: int) -> None:
    """Raises what has become of a launch that the driver refused."""
    import torch

    torch.cuda.synchronize()  # raises where a kernel before it has failed
    raise DriverError(status, f"{name} was launched")


@cache
def launching() -> tuple[int, int, int, int]:
    """Addresses of what launches, of what gives and sets the current context, and of what gives torch's stream.

    NotImplementedError where the driver or torch has none.
    """
    try:
        torch = ctypes.CDLL("libtorch_cuda.so", os.RTLD_NOLOAD | os.RTLD_LAZY)
        stream = torch.aoti_torch_get_current_cuda_stream
    except (OSError, AttributeError) as error:
        raise NotImplementedError(f"kernels cannot be launched from C: {error}") from error
    cuda = library()
    found = [cuda.cuLaunchKernelEx, cuda.cuCtxGetCurrent, cuda.cuCtxSetCurrent, stream]
    launch, get, put, tell = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found]
    return launch, get, put, tell
