"""Large results: memory that nobody holds any more, or else fresh memory in huge pages.

The first write to a fresh page costs a fault, in which the system clears it; for a tensor of 40 MiB that takes longer
than writing it does. So the storages of large results are remembered, and one that the program has let go of is the
memory of the next result of as many bytes. Where there is none, Linux gives huge pages to memory that asks for them.

Invariant: a storage is handed out again only while this module alone refers to it, from C++ and from Python, and its
memory is the one that it was made with: what was given to another process, or resized, is forgotten. Otherwise it is
PyTorch's, like any other.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from stator.base.device import HOST
from stator.sizes.strides import span

if TYPE_CHECKING:
    import torch

#: Storages of fewer bytes are not remembered; of others, how many bytes at most.
LEAST, MOST = 1 << 20, 256 << 20
#: Of results for which there is no room, which one in turn takes that of storages that were not needed for the longest:
#: where calls ask for more than there is room for, over and over, the others leave what is kept in peace.
PATIENCE = 4

_HUGE_PAGE = 2 << 20
_MADV_HUGEPAGE = 14


def large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """`torch.empty_strided`, in memory that was used before, or in huge pages where the system has them."""
    import torch  # the package itself does not need torch

    def around(storage: torch.UntypedStorage) -> torch.Tensor:
        made = torch.empty(0, dtype=dtype, device=HOST).set_(storage, 0, size, stride)
        if not made.is_inference():  # to autograd it is new
            torch._C._autograd._unsafe_set_version_counter((made,), (0,))
        return made

    made = _storages.take(span(size, stride) * dtype.itemsize, around)
    if made is None:
        made = torch.empty_strided(size, stride, dtype=dtype, device=HOST)
        if type(made) is torch.Tensor:  # no mode has made something else of it
            ask_for_huge_ones(made.untyped_storage())
            _storages.remember(made.untyped_storage())
    return made


def held() -> int:
    """The bytes of results that the program has let go of, and that are kept for others."""
    return _storages.idle()


def release() -> None:
    """Let go of them."""
    _storages.clear()


# ---- memory that is used again


@dataclass(slots=True, eq=False)
class _Known:
    """A storage, where it is as long as nobody changes it, and when it was last made or handed out."""

    storage: torch.UntypedStorage
    address: int
    turn: int

    def is_idle(self) -> bool:
        """Whether nothing else refers to it: no tensor, and nothing in Python beside this record and the question."""
        import torch  # the package itself does not need torch

        return torch._C._storage_Use_Count(self.storage._cdata) == 1 and sys.getrefcount(self.storage) == 2

    def is_as_made(self, nbytes: int) -> bool:
        """Whether its memory is its own still."""
        return self.storage.data_ptr() == self.address and self.storage.nbytes() == nbytes


class _Storages:
    """Those of large results, by their bytes. A record is taken out until there is a tensor around its storage, so that
    two threads do not use the same.
    """

    __slots__ = ("by_bytes", "refused", "total", "turn")

    def __init__(self) -> None:
        self.by_bytes: dict[int, deque[_Known]] = {}
        self.refused = 0
        self.total = 0
        self.turn = 0

    def take(self, nbytes: int, around: Callable[[torch.UntypedStorage], torch.Tensor]) -> torch.Tensor | None:
        """A tensor around one of so many bytes that is idle."""
        self.turn += 1
        records = self.by_bytes.get(nbytes)
        if records is None:
            return None
        for _ in range(len(records)):
            known = _pop(records)
            if known is None:
                break
            if not known.is_as_made(nbytes):
                self.total -= nbytes
                continue
            made = around(known.storage) if known.is_idle() else None
            if made is not None:
                known.turn = self.turn
            records.append(known)
            if made is not None:
                return made
        return None

    def remember(self, storage: torch.UntypedStorage) -> None:
        """A new one, if there is room, or can be made."""
        nbytes = storage.nbytes()
        if not LEAST <= nbytes <= MOST:
            return
        if self.total + nbytes > MOST:
            self.refused += 1
            if self.refused % PATIENCE == 0:
                self._make_room(MOST - nbytes)
        if self.total + nbytes <= MOST:
            self.total += nbytes
            self.by_bytes.setdefault(nbytes, deque()).append(_Known(storage, storage.data_ptr(), self.turn))

    def idle(self) -> int:
        """Bytes that are held for nobody."""
        return sum(n for n, records in self.by_bytes.items() for known in tuple(records) if known.is_idle())

    def clear(self) -> None:
        self.by_bytes, self.total = {}, 0

    def _make_room(self, most: int) -> None:
        """Forget idle ones, the oldest first, until there are so many bytes left, if there can be."""
        known = [(one, nbytes) for nbytes, records in self.by_bytes.items() for one in tuple(records)]
        idle = [(one.turn, nbytes, one) for one, nbytes in known if one.is_idle()]
        if self.total - sum(nbytes for _, nbytes, _ in idle) > most:
            return
        for _, nbytes, one in sorted(idle, key=lambda item: item[:2]):
            records = self.by_bytes[nbytes]
            if self.total > most and one in records:
                records.remove(one)
                self.total -= nbytes


def _pop(records: deque[_Known]) -> _Known | None:
    """The first; None where another thread took the last."""
    try:
        return records.popleft()
    except IndexError:
        return None


_storages = _Storages()

# ---- fresh memory


def ask_for_huge_ones(storage: torch.UntypedStorage) -> None:
    """Only whole huge pages inside of it; a refusal changes nothing."""
    address = storage.data_ptr()
    start = -(-address // _HUGE_PAGE) * _HUGE_PAGE
    length = (address + storage.nbytes() - start) // _HUGE_PAGE * _HUGE_PAGE
    if length > 0:
        _advise()(start, length, _MADV_HUGEPAGE)


@cache
def _advise() -> Callable[[int, int, int], int]:
    """The system's `madvise`, or nothing."""
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return lambda start, length, advice: 0
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return found
