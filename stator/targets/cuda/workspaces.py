"""Memory in which cuBLAS works, 32 MiB on Hopper, for the products of recordings.

PyTorch has a workspace for each thread's handle and stream, makes it where it is first asked for, and keeps it. A
replay works in the one that its capture was given, which therefore lives as long as the recording: it comes from a pool
that the recording holds. Afterwards PyTorch is made to forget it, so that other recordings have the memory too.

PyTorch only forgets those of all threads at once, and another thread may have been told of its own and not have queued
its product yet, which would then write memory that somebody else has, or nobody. So beside other threads nothing is
forgotten: workspaces lie in a pool of their stream's, and both are there when calls of the same stream are recorded
again, whose replays come after all that worked there.
Neighbours: `recorder.py` captures; `recording/lanes.py` has a stream beside for each one that calls are made on.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from stator.targets.cuda import workers
from stator.targets.cuda.driver import library
from stator.targets.cuda.memory import new_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: Handle of a stream → pools in which PyTorch may have workspaces for it. Such a stream is not closed.
_pools: dict[int, list[torch.cuda.MemPool]] = {}
#: Number of a device and of the stream that calls are made on → streams beside, with such pools, that no lane has.
_spare: dict[tuple[int, int], list[torch.cuda.Stream]] = {}


def side_stream(number: int, stream: int) -> torch.cuda.Stream:
    """A stream of the device that nobody else has: those of PyTorch take turns."""
    import torch

    if spare := _spare.get((number, stream)):
        return spare.pop()
    made = ctypes.c_void_p()
    with torch.cuda.device(number):
        torch.cuda.current_stream().query()  # makes the context, where nothing was done on the device yet
        status = library().cuStreamCreate(ctypes.byref(made), _NON_BLOCKING)
    if status != 0:
        raise RuntimeError(f"CUDA error {status} in making a stream")
    return torch.cuda.ExternalStream(made.value or 0, number)


def close_stream(side: torch.cuda.Stream, stream: int) -> None:
    """Gives it back."""
    if side.cuda_stream in _pools:
        _spare.setdefault((side.device_index, stream), []).append(side)
    else:
        library().cuStreamDestroy_v2(ctypes.c_void_p(side.cuda_stream))


@contextmanager
def workspace(side: torch.cuda.Stream, pool: torch.cuda.MemPool) -> Iterator[None]:
    """Within this a product of this thread on the stream has a workspace, from `pool` where it is forgotten after."""
    import torch

    if alone := is_alone():
        _forget()
    kept = _pools.get(side.cuda_stream, [])
    source = pool if alone else kept[0] if kept else new_pool(side.device_index)
    with torch.cuda.use_mem_pool(source, side.device_index):
        torch.cuda.current_blas_handle()  # a thread's first one cannot be made while it captures, either
    try:
        yield
    finally:
        if alone and is_alone():
            _forget()
        elif source not in kept:
            _pools.setdefault(side.cuda_stream, []).append(source)


def is_alone() -> bool:
    """Whether no other thread can be about to multiply.

    Threads that Python has not started are those of backward, for which the one that called it waits; but each device
    has one. Those that wait for our compilers multiply nothing.
    """
    import torch

    started = [
        thread
        for thread in threading.enumerate()
        if thread.name != workers.THREAD and not isinstance(thread, threading._DummyThread)
    ]
    backward = torch._C._current_autograd_node() is not None
    return len(started) == 1 and not (backward and torch.cuda.device_count() > 1)


def _forget() -> None:
    """Has PyTorch forget all workspaces, and closes the streams that were kept for theirs."""
    import torch

    torch._C._cuda_clearCublasWorkspaces()
    while _spare:
        (_, stream), sides = _spare.popitem()
        for side in sides:
            del _pools[side.cuda_stream]
            close_stream(side, stream)


#: Of a stream: it does not wait for the default one.
_NON_BLOCKING: Final = 1
