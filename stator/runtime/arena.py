"""Memory of intermediates of plans that run as Python: one growing piece per thread, device and stream.

A linked graph owns a `Scratch`: the list of its views into the arena. Calling it gives the tensors, made once per
thread and stream, and again only when another graph has made the arena grow; one that is too small is given back
before. Where sizes are symbolic it is a `SizedScratch`, which plans the views for each combination of sizes, and keeps
those of the last combinations.
Invariant: what shares an arena runs one after another. Graphs do so in one thread on one stream, the stream on which
the arena was allocated, so PyTorch's allocator gives its memory to nobody else before they are done; nothing in the
arena outlives a call. Results and saved tensors have memory of their own, allocated on the stream of the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from stator import targets
from stator.base.device import HOST
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


def _stream_of(device: str) -> Callable[[], int]:
    """What tells the stream of a device at each call."""
    toolchain = targets.toolchain(device)
    return partial(toolchain.current_stream, toolchain.number(device))


@dataclass(slots=True, eq=False)
class _Arena:
    """The memory of one thread on one stream, and who has views of it."""

    base: torch.Tensor | None = None
    users: WeakSet[SizedScratch] = field(default_factory=WeakSet)


class _Arenas(threading.local):
    """This thread's arenas by device and stream."""

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], _Arena] = {}


@dataclass(slots=True)
class _Views:
    """Views of one graph into one arena, for the last combinations of sizes."""

    base: torch.Tensor
    by_sizes: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = field(default_factory=dict)


class _Made(threading.local):
    """This thread's views of one graph, by stream."""

    def __init__(self) -> None:
        self.by_stream: dict[int, _Views] = {}


_arenas = _Arenas()


class SizedScratch:
    """The intermediates of one graph with symbolic sizes: called with the values of the symbols."""

    __slots__ = ("__weakref__", "_made", "_stream", "device", "plan")

    def __init__(self, plan: Plan, device: str = HOST) -> None:
        self.plan, self.device = plan, device
        self._made = _Made()
        self._stream = _stream_of(device)

    def __call__(self, *sizes: int) -> tuple[torch.Tensor, ...]:
        """The views, in the order of the plan's pieces."""
        made = self._made.by_stream.get(self._stream())
        views = None if made is None else made.by_sizes.get(sizes)
        return self._make(sizes) if views is None else views

    def _make(self, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        nbytes, pieces = self.plan(*sizes)
        stream = self._stream()
        base = _arena(self, stream, nbytes, ahead=bool(sizes))
        made = self._made.by_stream.get(stream)
        if made is None or made.base is not base:
            made = self._made.by_stream[stream] = _Views(base)
        elif len(made.by_sizes) >= COMBINATIONS:
            del made.by_sizes[next(iter(made.by_sizes))]
        found = made.by_sizes[sizes] = views(base, [Piece(*piece) for piece in pieces])  # type: ignore[arg-type]
        return found

    def forget(self, stream: int) -> None:
        """Let go of this thread's arena on a stream."""
        self._made.by_stream.pop(stream, None)


class Scratch(SizedScratch):
    """The intermediates of one graph: the views, in the order of the pieces."""

    __slots__ = ()

    def __init__(self, nbytes: int, pieces: Sequence[tuple[object, ...]], device: str = HOST) -> None:
        super().__init__(lambda: (nbytes, pieces), device)


def _arena(user: SizedScratch, stream: int, nbytes: int, ahead: bool = False) -> torch.Tensor:
    """An arena of at least so many bytes; `ahead`, half as much again when it grows, for sizes grow step by step."""
    arena = _arenas.by_place.setdefault((user.device, stream), _Arena())
    had = -1 if arena.base is None else arena.base.numel()
    if had < nbytes:
        arena.base = None
        for other in arena.users:
            other.forget(stream)
        most = max(nbytes, had * 3 // 2) if ahead else nbytes
        arena.base = allocate(most, user.device)
    arena.users.add(user)
    assert arena.base is not None
    return arena.base


def allocate(nbytes: int, device: str = HOST) -> torch.Tensor:
    """So many bytes, not cleared, that any call may use."""
    import torch  # the package itself does not need torch

    with torch.inference_mode(False), torch.no_grad():
        return torch.empty(nbytes, dtype=torch.uint8, device=device)


def views(base: torch.Tensor, pieces: Sequence[Piece | None]) -> tuple[Any, ...]:
    """The pieces of an arena as tensors, None for None."""
    import torch  # the package itself does not need torch

    with torch.inference_mode(False), torch.no_grad():
        return tuple([None if piece is None else _view(base, piece) for piece in pieces])


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
    import torch  # the package itself does not need torch

    start, rest = divmod(int(tensor.storage_offset()) * tensor.dtype.itemsize, dtype.itemsize)
    if rest:  # it begins in the middle of an element: only a copy begins with a whole one
        tensor, start = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,)).clone(), 0
    made = torch.empty(0, dtype=dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), start + offset, size, stride)


def held() -> int:
    """The bytes of this thread's arenas, of those that the C core keeps for graphs of any thread, and of large results
    that the program has let go of and that are kept for others (`csrc/results.c`).
    """
    from stator._native import results_bytes, scratch_bytes  # needs torch, which this package does not

    kept = scratch_bytes() + results_bytes()
    return kept + sum(arena.base.numel() for arena in _arenas.by_place.values() if arena.base is not None)


def release() -> None:
    """Give all of it back; graphs make it again when they next run."""
    from stator._native import results_release, scratch_release  # needs torch, which this package does not

    scratch_release()
    results_release()
    for (_, stream), arena in _arenas.by_place.items():
        for user in arena.users:
            user.forget(stream)
    _arenas.by_place.clear()
