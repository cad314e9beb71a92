"""Memory of intermediates: one growing piece per thread and device, shared by all graphs that run there.

A linked graph owns a `Scratch`: the list of its views into the arena. Calling it gives the tensors, made once per
thread and again only when another graph has made the arena grow. Graphs in one thread run one after another, so they
may use the same bytes; nothing in the arena outlives a call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Piece(NamedTuple):
    """A strided view at a byte offset of the arena."""

    offset: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Arenas(threading.local):
    """This thread's arenas by device."""

    def __init__(self) -> None:
        self.bases: dict[str, torch.Tensor] = {}


class _Made(threading.local):
    """This thread's views of one graph, and the arena they are of."""

    base: torch.Tensor | None = None
    views: tuple[torch.Tensor, ...] = ()


_arenas = _Arenas()


class Scratch:
    """The intermediates of one graph."""

    __slots__ = ("_made", "device", "nbytes", "pieces")

    def __init__(self, nbytes: int, pieces: Sequence[tuple[object, ...]], device: str = "cpu") -> None:
        self.nbytes, self.device = nbytes, device
        self.pieces = [Piece(*piece) for piece in pieces]  # type: ignore[arg-type]
        self._made = _Made()

    def __call__(self) -> tuple[torch.Tensor, ...]:
        """The views, in the order of the pieces."""
        made = self._made
        base = _arenas.bases.get(self.device)
        if base is not None and base is made.base:
            return made.views
        return self._make(base)

    def _make(self, base: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        import torch  # the room itself does not need torch

        with torch.inference_mode(False), torch.no_grad():
            if base is None or base.numel() < self.nbytes:
                base = torch.empty(max(self.nbytes, 1 << 16), dtype=torch.uint8, device=self.device)
                _arenas.bases[self.device] = base
            made = self._made
            made.views = tuple([_view(base, piece) for piece in self.pieces])
            made.base = base
        return made.views


def _view(base: torch.Tensor, piece: Piece) -> torch.Tensor:
    span = 1 + sum((n - 1) * s for n, s in zip(piece.size, piece.stride, strict=True)) if 0 not in piece.size else 0
    flat = base[piece.offset : piece.offset + span * piece.dtype.itemsize].view(piece.dtype)
    return flat.as_strided(piece.size, piece.stride, flat.storage_offset())


def view(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """A tensor's memory read another way; the offset counts from the tensor's own first element."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def release() -> None:
    """Give this thread's arenas back; graphs make them again when they next run."""
    _arenas.bases.clear()
