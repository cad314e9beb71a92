"""Zeros that are mostly just read: the gradient of a result that the caller did not differentiate.

A backward graph is compiled for all tangents. Where none comes (a model's logits beside its loss), it reads zeros; on
a CPU large ones are memory that the system has promised but not filled: reading it costs next to nothing, and takes
no memory. Writing to it is as writing to any memory. Neighbour: `runtime.py`.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch

from stator.sizes.strides import span

#: Bytes from which on asking the system is cheaper than writing zeros.
LARGE = 1 << 20
_FLAGS = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def zeros(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros of a layout without holes."""
    count = torch.Size(size).numel()
    nbytes = count * dtype.itemsize
    if device.type != "cpu" or nbytes < LARGE or not _FLAGS or span(size, stride) != count:
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    memory = mmap.mmap(-1, nbytes, flags=_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without huge pages: reading costs a fault for each small one
            memory.madvise(mmap.MADV_HUGEPAGE)
    flat = torch.frombuffer(memory, dtype=dtype)
    return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, size, stride)
