"""Memory of intermediates: one growing piece per thread and device, shared by all graphs that run there.

A linked graph owns a `Scratch`: the list of its views into the arena. Calling it gives the tensors, made once per
thread and again only when another graph has made the arena grow; one that is too small is given back before. Where
sizes are symbolic it is a `SizedScratch`, which plans the views for each combination of sizes, and keeps those of the
last combinations. Graphs in one thread run one after another, so they may use the same bytes; nothing in the arena
outlives a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from stator.sizes.strides import span

if TYPE_CHECKING:
    import torch


class Piece(NamedTuple):
    """A strided view at a byte offset of the arena."""

    offset: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]


#: The bytes that a graph needs, and its pieces (as arguments of `Piece`), for values of its symbols.
Plan = Callable[..., tuple[int, Sequence[tuple[object, ...]]]]
#: How many combinations of sizes a thread keeps the views of.
COMBINATIONS = 32


class _Arenas(threading.local):
    """This thread's arenas by device."""

    def __init__(self) -> None:
        self.bases: dict[str, torch.Tensor] = {}
        #: Who has views of them.
        self.users: dict[str, WeakSet[Scratch | SizedScratch]] = {}


class _Made(threading.local):
    """This thread's views of one graph, and the arena they are of."""

    base: torch.Tensor | None = None
    views: tuple[torch.Tensor, ...] = ()


class _MadeBySize(threading.local):
    """This thread's views of one graph for the last combinations of sizes, and the arena they are of."""

    def __init__(self) -> None:
        self.base: torch.Tensor | None = None
        self.views: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = {}


_arenas = _Arenas()


class Scratch:
    """The intermediates of one graph."""

    __slots__ = ("__weakref__", "_made", "device", "nbytes", "pieces")

    def __init__(self, nbytes: int, pieces: Sequence[tuple[object, ...]], device: str = "cpu") -> None:
        self.nbytes, self.device = nbytes, device
        self.pieces = [Piece(*piece) for piece in pieces]  # type: ignore[arg-type]
        self._made = _Made()

    def __call__(self) -> tuple[torch.Tensor, ...]:
        """The views, in the order of the pieces."""
        made = self._made
        if made.base is not None and made.base is _arenas.bases.get(self.device):
            return made.views
        return self._make()

    def _make(self) -> tuple[torch.Tensor, ...]:
        base, made = _arena(self, self.nbytes), self._made
        made.base, made.views = base, _views(base, self.pieces)
        return made.views

    def forget(self) -> None:
        """Let go of this thread's arena."""
        self._made.base, self._made.views = None, ()


class SizedScratch:
    """The intermediates of one graph with symbolic sizes: called with the values of the symbols."""

    __slots__ = ("__weakref__", "_made", "device", "plan")

    def __init__(self, plan: Plan, device: str = "cpu") -> None:
        self.plan, self.device = plan, device
        self._made = _MadeBySize()

    def __call__(self, *sizes: int) -> tuple[torch.Tensor, ...]:
        """The views, in the order of the plan's pieces."""
        made = self._made
        if made.base is not None and made.base is _arenas.bases.get(self.device):
            views = made.views.get(sizes)
            if views is not None:
                return views
        return self._make(sizes)

    def _make(self, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        nbytes, pieces = self.plan(*sizes)
        base, made = _arena(self, nbytes, ahead=True), self._made
        if made.base is not base:
            made.base = base
            made.views.clear()
        elif len(made.views) >= COMBINATIONS:
            del made.views[next(iter(made.views))]
        views = made.views[sizes] = _views(base, [Piece(*piece) for piece in pieces])  # type: ignore[arg-type]
        return views

    def forget(self) -> None:
        """Let go of this thread's arena."""
        self._made.base = None
        self._made.views.clear()


def _arena(user: Scratch | SizedScratch, nbytes: int, ahead: bool = False) -> torch.Tensor:
    """An arena of at least so many bytes; `ahead`, half as much again when it grows, for sizes grow step by step."""
    import torch  # the room itself does not need torch

    device = user.device
    users = _arenas.users.setdefault(device, WeakSet())
    base = _arenas.bases.get(device)
    had = -1 if base is None else base.numel()
    if base is None or had < nbytes:
        base = None
        _arenas.bases.pop(device, None)
        for other in users:
            other.forget()
        most = max(nbytes, had * 3 // 2) if ahead else nbytes
        with torch.inference_mode(False), torch.no_grad():
            base = _arenas.bases[device] = torch.empty(most, dtype=torch.uint8, device=device)
    users.add(user)
    return base


def _views(base: torch.Tensor, pieces: Sequence[Piece]) -> tuple[torch.Tensor, ...]:
    import torch  # the room itself does not need torch

    with torch.inference_mode(False), torch.no_grad():
        return tuple([_view(base, piece) for piece in pieces])


def _view(base: torch.Tensor, piece: Piece) -> torch.Tensor:
    end = piece.offset + span(piece.size, piece.stride) * piece.dtype.itemsize
    flat = base[piece.offset : end].view(piece.dtype)
    return flat.as_strided(piece.size, piece.stride, flat.storage_offset())


def view(
    tensor: torch.Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A tensor's memory read another way, maybe as another dtype; the offset counts from the first element."""
    if dtype is not None:
        return _reinterpreted(tensor, size, stride, offset, dtype)
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _reinterpreted(
    tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int, dtype: torch.dtype
) -> torch.Tensor:
    import torch  # the room itself does not need torch

    start, rest = divmod(int(tensor.storage_offset()) * tensor.dtype.itemsize, dtype.itemsize)
    if rest:  # it begins in the middle of an element: only a copy begins with a whole one
        tensor, start = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,)).clone(), 0
    made = torch.empty(0, dtype=dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), start + offset, size, stride)


def held() -> int:
    """The bytes of this thread's arenas."""
    return sum(base.numel() for base in _arenas.bases.values())


def release() -> None:
    """Give this thread's arenas back; graphs make them again when they next run."""
    _arenas.bases.clear()
    for users in _arenas.users.values():
        for user in users:
            user.forget()
