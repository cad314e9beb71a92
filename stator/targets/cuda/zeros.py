"""Zeros of a GPU that take two megabytes, however many they are: the same memory, mapped again and again.

Addresses cost nothing, and many of them may lead to one piece of memory (the driver's virtual memory management). Who
reads such zeros reads the same piece over and over, which stays in the cache. The addresses stay what they are as long
as the process lives, so what was recorded with them may be replayed.
Neighbours: `base/zeros.py` has the table, `driver.py` calls.
"""

from __future__ import annotations

import ctypes
from functools import cache
from threading import Lock
from typing import Any

from stator.base.zeros import SHARED
from stator.targets.cuda import driver

_SUPPORTED = 102  # the attribute of a device: whether it manages virtual memory
_PINNED, _ON_DEVICE, _READ_WRITE = 1, 1, 3

_lock = Lock()
#: By number of a device its rows of zeros, each longer than the one before: who asks again gets the same addresses.
_rows: dict[int, list[Any]] = {}


class _Kind(ctypes.Structure):
    """What memory is asked for (`CUmemAllocationProp`)."""

    _fields_ = (
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
        ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8),
    )  # fmt: skip


class _Access(ctypes.Structure):
    """Who may do what with it (`CUmemAccessDesc`)."""

    _fields_ = (("location", ctypes.c_int), ("device", ctypes.c_int), ("rights", ctypes.c_int))


class _Row:
    """Memory at an address, as PyTorch takes it from others."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def row(number: int, nbytes: int) -> Any:
    """A tensor of at least so many bytes that are zero; None on devices without virtual memory management."""
    with _lock:
        rows = _rows.setdefault(number, [])
        for known in rows:
            if known.numel() >= nbytes:
                return known
        if not _is_supported(number):
            return None
        import torch  # no target imports it before it is asked

        with driver.primary(number):
            address, size = _mapped(number, nbytes)
        rows.append(torch.as_tensor(_Row(address, size), device=torch.device("cuda", number)))
        return rows[-1]


@cache
def _is_supported(number: int) -> bool:
    device, found = ctypes.c_int(), ctypes.c_int()
    try:
        driver.library()
    except NotImplementedError:
        return False
    with driver.primary(number):
        driver.call("cuDeviceGet", ctypes.byref(device), number, what=f"device {number} was looked for")
        driver.call("cuDeviceGetAttribute", ctypes.byref(found), _SUPPORTED, device, what="a device was asked")
    return bool(found.value)


def _mapped(number: int, nbytes: int) -> tuple[int, int]:
    """New addresses of zeros, and how many: a power of two, so that there are few such rows."""
    memory, piece = _piece(number)
    count = 1 << (-(-nbytes // piece) - 1).bit_length()
    size = ctypes.c_size_t(count * piece)
    address, none = ctypes.c_uint64(), ctypes.c_size_t(0)
    what = f"{size.value} addresses were asked for"
    driver.call(
        "cuMemAddressReserve", ctypes.byref(address), size, none, ctypes.c_uint64(0), ctypes.c_uint64(0), what=what
    )
    for i in range(count):
        place = ctypes.c_uint64(address.value + i * piece)
        handle = ctypes.c_uint64(memory)
        driver.call(
            "cuMemMap", place, ctypes.c_size_t(piece), none, handle, ctypes.c_uint64(0), what="zeros were mapped"
        )
    access = _Access(_ON_DEVICE, number, _READ_WRITE)
    driver.call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1), what="zeros were opened")
    driver.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(piece), what="zeros were written")
    driver.call("cuCtxSynchronize", what="zeros were written")
    return address.value, size.value


@cache
def _piece(number: int) -> tuple[int, int]:
    """The handle of the memory, and its bytes: as few as can be mapped."""
    kind = _Kind(_PINNED, 0, _ON_DEVICE, number)
    size, handle = ctypes.c_size_t(), ctypes.c_uint64()
    smallest = ctypes.c_int(0)
    driver.call(
        "cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(kind), smallest, what="a device was asked"
    )
    what = f"{size.value} bytes were asked for"
    driver.call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(kind), ctypes.c_uint64(0), what=what)
    return handle.value, size.value


SHARED["cuda"] = row
