"""Memory of recordings: pools of PyTorch's allocator, memory for results, zeros that are mapped.

Neighbours: `recorder.py`, which gives these to `stator.recording`.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, insort
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stator.sizes.strides import span
from stator.targets.cuda.driver import call
from stator.targets.cuda.toolchain import KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import torch

    #: Size, stride and dtype.
    Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def new_pool(number: int) -> torch.cuda.MemPool:
    """A pool of PyTorch's allocator; its memory goes back when neither it nor a tensor in it is left."""
    import torch

    with torch.cuda.device(number):
        return torch.cuda.MemPool()


def release(number: int) -> None:
    """Gives back what PyTorch's allocator keeps for later calls."""
    import torch

    with torch.cuda.device(number):
        torch.cuda.empty_cache()


def empty(number: int, forms: Sequence[Form]) -> list[torch.Tensor]:
    """New memory for each size, stride and dtype, for which the device gives as little as possible.

    PyTorch's allocator asks the device for whole 2 MiB for a large request, or for 20 MiB for several of a few MiB, and
    what such a piece has beyond them is nobody's as long as one of them lives. So what does not fit into what earlier
    requests have left is asked for at once, in a pool that has nothing else, which then makes parts of that.
    """
    import torch

    device = torch.device(KIND, number)
    sizes = [_rounded(span(size, stride) * dtype.itemsize) for size, stride, dtype in forms]
    # The allocator takes the smallest free block in which a request fits: largest first leaves the fewest that do not.
    order = sorted(range(len(forms)), key=lambda i: -sizes[i])
    apart = without_room(_free_blocks(number), {i: sizes[i] for i in order if sizes[i] > _LARGE})
    total = sum(sizes[i] for i in apart)
    pool = _with_piece(number, total) if total > _PIECE else None
    made = {}
    for i in order:
        size, stride, dtype = forms[i]
        with torch.cuda.use_mem_pool(pool, number) if pool is not None and i in apart else nullcontext():
            made[i] = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return [made[i] for i in range(len(forms))]


#: Bytes beyond which a request is large for PyTorch's allocator, beyond which it asks the device for each of them, and
#: of which it makes all requests multiples. A large block is only cut where more than `_LARGE` of it is left.
_LARGE, _PIECE, _ALIGNMENT = 2**20, 10 * 2**20, 512


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def without_room(free: Iterable[int], requests: Mapping[int, int]) -> set[int]:
    """Requests that do not fit into free blocks of so many bytes; each that does takes its part of the smallest."""
    blocks = sorted(free)
    left = set()
    for request, nbytes in requests.items():
        at = bisect_left(blocks, nbytes)
        if at == len(blocks):
            left.add(request)
        elif (rest := blocks.pop(at) - nbytes) > _LARGE:
            insort(blocks, rest)
    return left


def _free_blocks(number: int) -> Iterator[int]:
    """Bytes of the large blocks that nobody has, and that the allocator gives to requests outside of pools."""
    import torch

    stream = torch.cuda.current_stream(number).cuda_stream
    for segment in torch.cuda.memory_snapshot():
        known = segment["device"], segment["stream"], segment["segment_pool_id"], segment["segment_type"]
        if known == (number, stream, (0, 0), "large"):
            yield from [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]


def _with_piece(number: int, nbytes: int) -> torch.cuda.MemPool | None:
    """A pool with so many bytes that are free; None where the device has not as many left."""
    import torch

    pool = new_pool(number)
    with torch.cuda.use_mem_pool(pool, number):
        try:
            torch.empty(nbytes, dtype=torch.uint8, device=torch.device(KIND, number))
        except torch.OutOfMemoryError:
            return None
    return pool


def zeros(number: int, nbytes: int, mapped: bool) -> torch.Tensor:
    """Bytes that are zero, behind what is queued on the current stream.

    Where they are `mapped`, they take one piece of memory, of 2 MiB, which is there again and again, side by side.
    """
    import torch

    with torch.cuda.device(number):
        stream = torch.cuda.current_stream()
        stream.query()  # makes the context, where nothing was done on the device yet
        known = _mapped(number, nbytes, stream.cuda_stream) if mapped else None
        if known is None:
            return torch.zeros(nbytes, dtype=torch.uint8, device=stream.device)
        return torch.as_tensor(known, device=stream.device)


def memory(number: int, address: int, nbytes: int, keeper: object) -> torch.Tensor:
    """Bytes at an address, with a storage of their own that keeps the keeper."""
    import torch

    return torch.as_tensor(_Memory(address, nbytes, keeper), device=torch.device(KIND, number))


class _Location(ctypes.Structure):
    """Which device memory is of, as the driver describes it."""

    _fields_ = (("type", ctypes.c_int), ("number", ctypes.c_int))


class _Allocation(ctypes.Structure):
    """Memory that is asked for."""

    _fields_ = (
        *(("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", _Location), ("metadata", ctypes.c_void_p)),
        *(("compression", ctypes.c_ubyte), ("direct", ctypes.c_ubyte), ("usage", ctypes.c_ushort)),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Access(ctypes.Structure):
    """Who may do what with mapped memory."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@dataclass(frozen=True, slots=True)
class _Memory:
    """Memory of a device, and what keeps it. Nothing keeps zeros: calls that read them may be under way at any time."""

    address: int
    nbytes: int
    keeper: object = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


#: The most zeros of each device.
_zeros: dict[int, _Memory] = {}
#: Of a device: it can map memory.
_CAN_MAP: Final = 102
#: Of memory: it is on a device and stays there; and it may be read and written.
_PINNED, _ON_DEVICE, _READ_AND_WRITE = 1, 1, 3


def _mapped(number: int, nbytes: int, stream: int) -> _Memory | None:
    """So many zeros at least; None where the device does not map memory."""
    able = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(able), _CAN_MAP, number, what="an attribute was asked for")
    if not able.value:
        return None
    known = _zeros.get(number)
    if known is None or known.nbytes < nbytes:
        known = _zeros[number] = _map_zeros(number, nbytes, stream)
    return known


def _map_zeros(number: int, nbytes: int, stream: int) -> _Memory:
    location, nothing = _Location(_ON_DEVICE, number), ctypes.c_uint64(0)
    asked = _Allocation(type=_PINNED, location=location)
    piece, handle, base = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64()
    call(
        "cuMemGetAllocationGranularity", ctypes.byref(piece), ctypes.byref(asked), 0, what="a granularity was asked for"
    )
    size = piece.value
    count = max(-(-nbytes // size), 1)
    total = ctypes.c_size_t(count * size)
    call("cuMemCreate", ctypes.byref(handle), piece, ctypes.byref(asked), nothing, what="memory was taken")
    where = ctypes.byref(base), total, ctypes.c_size_t(0), nothing, nothing
    call("cuMemAddressReserve", *where, what="addresses were reserved")
    for at in range(base.value, base.value + count * size, size):
        call("cuMemMap", ctypes.c_uint64(at), piece, ctypes.c_size_t(0), handle, nothing, what="memory was mapped")
    access = ctypes.byref(_Access(location, _READ_AND_WRITE))
    call("cuMemSetAccess", base, total, access, ctypes.c_size_t(1), what="memory was made accessible")
    queue = ctypes.c_void_p(stream)
    call("cuMemsetD8Async", base, ctypes.c_ubyte(0), piece, queue, what="memory was cleared")
    call("cuStreamSynchronize", queue, what="a stream was waited for")
    call("cuMemRelease", handle, what="a handle was given back")  # what is mapped keeps the memory
    return _Memory(base.value, count * size)
