"""Zeros that are mostly just read: the gradient of a result that the caller did not differentiate.

A backward graph is compiled for all tangents. Where none comes (a model's logits beside its loss), it reads zeros; on
a CPU large ones are memory that the system has promised but not filled: reading it costs next to nothing, and takes
no memory. Writing to it is as writing to any memory. On a GPU they are addresses of memory that all such zeros share:
a graph only reads what it is given, and a gradient that would lie there becomes memory of its own (`owned`).
Neighbours: `runtime.py`; `base/zeros.py` has the table of devices.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from stator.base.zeros import SHARED
from stator.sizes.strides import span

#: Bytes from which on asking the system is cheaper than writing zeros.
LARGE = 1 << 20
_FLAGS = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


#: Where zeros lie that are shared, first and past the last.
_shared: set[tuple[int, int]] = set()


def zeros(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros of a layout without holes, to be read: on some devices others have the same memory."""
    count = torch.Size(size).numel()
    nbytes = count * dtype.itemsize
    memory = None
    if nbytes >= LARGE and span(size, stride) == count:
        memory = _promised(nbytes) if device.type == "cpu" else _of_all(device, nbytes)
    if memory is None:
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    return torch.empty(0, dtype=dtype, device=device).set_(memory.untyped_storage(), 0, size, stride)


def owned(gradients: Sequence[Any]) -> Sequence[Any]:
    """The gradients, with memory of their own where they are zeros that others have too."""
    if not _shared:
        return gradients
    return [given.clone() if isinstance(given, torch.Tensor) and _is_shared(given) else given for given in gradients]


def _is_shared(tensor: torch.Tensor) -> bool:
    address = tensor.data_ptr()
    return any(first <= address < end for first, end in _shared)


def _promised(nbytes: int) -> torch.Tensor | None:
    """Memory that the system fills when it is touched."""
    if not _FLAGS:
        return None
    memory = mmap.mmap(-1, nbytes, flags=_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without huge pages: reading costs a fault for each small one
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _of_all(device: torch.device, nbytes: int) -> torch.Tensor | None:
    """Memory that is given to everybody who asks."""
    find = SHARED.get(device.type)
    if find is None:
        return None
    number = torch.accelerator.current_device_index() if device.index is None else device.index
    memory: torch.Tensor | None = find(number, nbytes)
    if memory is not None:
        _shared.add((memory.data_ptr(), memory.data_ptr() + memory.nbytes))
    return memory
