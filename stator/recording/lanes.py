"""What the recordings of one stream of a device have in common, and nothing of another stream has.

Replays of a stream run one after another, so memory that only lives within a call may be the same for all of them: it
comes from one pool of the device's allocator. The pool goes back when the last recording is gone. What is recorded is
queued on a stream beside, which the allocator knows the pool by.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Any

from stator._native import scratch_blocks, scratch_forget, scratch_move
from stator.targets import Recorder

_lanes: weakref.WeakValueDictionary[tuple[Hashable, ...], Lane] = weakref.WeakValueDictionary()


class Lane:
    """A stream, where its calls are recorded, and the memory of that."""

    __slots__ = ("__weakref__", "context", "lock", "number", "pool", "recorder", "side", "storages", "stream")

    def __init__(self, recorder: Recorder, number: int, stream: int) -> None:
        self.recorder, self.number, self.stream = recorder, number, stream
        self.side = recorder.side_stream(number, stream)
        self.pool = recorder.new_pool(number)
        self.context = recorder.context(number)
        #: Held while a call is being recorded; who does not get it runs as it is.
        self.lock = threading.Lock()
        #: Storages of results of recordings: an input that lies there comes from another recording.
        self.storages: set[int] = set()
        weakref.finalize(self, _let_go, recorder, number, stream, self.side).atexit = False


def lane_of(recorder: Recorder, number: int, stream: int) -> Lane:
    """The lane of a stream."""
    key = id(recorder), number, stream
    found = _lanes.get(key)
    if found is None:
        found = _lanes[key] = Lane(recorder, number, stream)
    return found


def _let_go(recorder: Recorder, number: int, stream: int, side: Any) -> None:
    """Intermediates of graphs have a block for each stream."""
    scratch_forget(number, recorder.stream_number(side))
    recorder.close_stream(side, stream)


def blocks_of(lane: Lane) -> list[Any]:
    """The memory of intermediates that calls on the stream beside have used."""
    return scratch_blocks(lane.number, lane.recorder.stream_number(lane.side))


def take_over(lane: Lane) -> None:
    """Have recordings use the largest memory of intermediates that calls on their stream have left, instead of new one.

    Mostly all graphs of a program have run as they are before the first one is recorded, so later recordings need no
    more, and none keeps memory that is too small for others. Replays use it behind whatever was queued there.
    """
    scratch_move(lane.number, lane.stream, lane.recorder.stream_number(lane.side))
