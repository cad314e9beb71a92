"""Memory that kernels ask the program for while they run: the function that gives it.

Kernels for GPUs need it for descriptors that they make themselves. Kernels run on the CPU, where none is needed: a
program may name the function, as Triton's do, and it is not called.
Neighbours: `stator.tile.language.block_pointers` makes descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.tile.errors import LaunchError


def set_allocator(allocator: Callable[[int, int, int | None], Any]) -> None:
    """Names the function that gives memory: of a size, an alignment and a stream. LaunchError if it is none."""
    if not callable(allocator):
        raise LaunchError(f"an allocator is a function of size, alignment and stream, not {allocator!r}")
