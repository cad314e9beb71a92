"""Memory that kernels ask the program for while they run: the function that gives it.

Kernels for GPUs need it for descriptors that they make themselves; in the interpreter none is needed, so the
function is kept and not called.
Neighbours: `stator.tile.language.block_pointers` makes descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from stator.tile.errors import LaunchError

_ALLOCATOR: ContextVar[Callable[..., Any] | None] = ContextVar("stator_tile_allocator", default=None)


def set_allocator(allocator: Callable[[int, int, int | None], Any]) -> None:
    """Names the function that gives memory: of a size, an alignment and a stream."""
    if not callable(allocator):
        raise LaunchError(f"an allocator is a function of size, alignment and stream, not {allocator!r}")
    _ALLOCATOR.set(allocator)


def current_allocator() -> Callable[..., Any] | None:
    """The function that was named last."""
    return _ALLOCATOR.get()
