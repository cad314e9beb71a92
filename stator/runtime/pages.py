"""Large results: fresh memory in huge pages.

The first write to a fresh page costs a fault; for a tensor of 64 MiB in pages of 4 KiB these cost several times the
writing. Linux gives huge pages to memory that asks for them, which is all that happens here: the memory is PyTorch's,
owned and freed like any other, and no larger.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_HUGE_PAGE = 2 << 20
#: Bytes from which on it is asked for them.
_LEAST = 4 << 20
_MADV_HUGEPAGE = 14


def large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """`torch.empty_strided` in huge pages where the system has them."""
    import torch  # the package itself does not need torch

    made = torch.empty_strided(size, stride, dtype=dtype)
    start = -(-made.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
    length = (made.data_ptr() + made.untyped_storage().nbytes() - start) // _HUGE_PAGE * _HUGE_PAGE
    if length > 0 and made.untyped_storage().nbytes() >= _LEAST:
        _advise()(start, length, _MADV_HUGEPAGE)  # only whole huge pages inside; a refusal changes nothing
    return made


@cache
def _advise() -> Callable[[int, int, int], int]:
    """The system's `madvise`, or nothing."""
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return lambda start, length, advice: 0
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return found
