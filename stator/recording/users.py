"""Other streams that results of recordings are used on, as a program says by `Tensor.record_stream`.

PyTorch's allocator heeds that before it gives memory out again, but memory of results is given out again by replays,
and the allocator does not tell. So the method is wrapped: of a result that lies in a place, the stream is noted there,
and the next replay that writes the place waits for it on the device (`csrc/recording.c`).
Memory that lies over another place (`overlays.py`) is not the allocator's: it is told of what lies under it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from stator._native import Place, storage_of
from stator.base.markers import disable

#: Storage → the place that it is.
_places: weakref.WeakValueDictionary[int, Place] = weakref.WeakValueDictionary()
#: Storage of memory that is not the allocator's own → what is.
_under: weakref.WeakValueDictionary[int, Under] = weakref.WeakValueDictionary()
#: Types of devices that have recordings.
_kinds: set[str] = set()
#: The method as it was when it was wrapped, by whomever it had been until then.
_original: Any = torch.Tensor.record_stream


class Under:
    """A tensor that keeps memory which a storage of its own has; it lives as long as that storage."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def heed_under(storage: int, under: Under) -> None:
    """What uses this storage uses what is under it."""
    _under[storage] = under


def heed_users(kind: str, places: Iterable[Place]) -> None:
    """From now on streams are noted that results in these places, on devices of this type, are used on."""
    global _original
    if not _kinds:  # once: who wraps it behind us calls us
        _original = torch.Tensor.record_stream
        torch.Tensor.record_stream = _record_stream  # type: ignore[assignment]
    _kinds.add(kind)
    _places.update({place.storage: place for place in places})


@disable(reason="a graph keeps its memory for the stream that it runs on")
def _record_stream(self: torch.Tensor, s: Any) -> None:
    if self.layout is torch.strided and self.device.type in _kinds:
        storage = storage_of(self)
        place, under = _places.get(storage), _under.get(storage)
        if place is not None:
            place.use(s)
        if under is not None:
            _original(under.tensor, s)
            return
    _original(self, s)


_record_stream.__name__ = _original.__name__
_record_stream.__doc__ = _original.__doc__
