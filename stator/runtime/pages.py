"""Large results: fresh memory in huge pages, for wrappers that run as Python; plans do the same in C.

The memory is PyTorch's, owned and freed like any other, and no larger. `csrc/pages.c` says when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator._native import ask_for_huge_pages

if TYPE_CHECKING:
    import torch


def large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """`torch.empty_strided` in huge pages where the system has them."""
    import torch  # the package itself does not need torch

    made = torch.empty_strided(size, stride, dtype=dtype)
    ask_for_huge_pages(made.data_ptr(), made.untyped_storage().nbytes())
    return made
