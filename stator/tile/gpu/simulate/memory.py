"""Shared memory of one program that knows who touched each byte since the last barrier.

What two threads do to one byte between two barriers, one of them writing, is a `Race`, although the simulator does one
operation after the other; so is reading a byte that nobody has written, or that a copy is on its way to. So is what
warp groups read with no fence and barrier behind the write, or what is written while they may be reading it.
Neighbours: `threads` reads and writes here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.interpret.casts import Data


class Race(AssertionError):
    """Threads that do not wait for one another where they have to."""


_NOBODY, _MANY = -1, -2
#: Of what has been written: warp groups see it; no fence is behind it; no barrier is behind that fence.
_SEEN, _UNFENCED, _FENCED = range(3)


@dataclass
class _Touch:
    """Of each byte: in which time between two barriers it was last touched in a way, and by which thread."""

    size: int
    time: Data = field(init=False)
    thread: Data = field(init=False)

    def __post_init__(self) -> None:
        self.time = np.full(self.size, -1, np.int64)
        self.thread = np.full(self.size, _NOBODY, np.int64)

    def by_others(self, places: Data, threads: Data, now: int) -> Data:
        """Whether another thread has touched each place since the last barrier."""
        return (self.time[places] == now) & (self.thread[places] != threads)

    def mark(self, places: Data, threads: Data, now: int) -> None:
        before = (self.time[places] == now) & (self.thread[places] != threads)
        self.time[places] = now
        self.thread[places] = threads
        self.thread[places[before]] = _MANY
        # Of threads that touch one place at once, the last one stands there: the others find that it is not theirs.
        self.thread[places[self.thread[places] != threads]] = _MANY


@dataclass(frozen=True)
class _Copy:
    places: Data
    threads: Data
    values: Data


class SharedMemory:
    """So many bytes."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.now = 0
        self.written = np.zeros(size, np.bool_)
        self.coming = np.zeros(size, np.int64)
        self.reads, self.writes = _Touch(size), _Touch(size)
        self.groups: list[list[_Copy]] = [[]]
        self.proxy = np.full(size, _SEEN, np.int8)
        self.multiplied = np.zeros(size, np.int64)
        self.products: list[Data] = []

    def barrier(self) -> None:
        self.now += 1
        self.proxy[self.proxy == _FENCED] = _SEEN

    def fence(self) -> None:
        self.proxy[self.proxy == _UNFENCED] = _FENCED

    def _bytes(self, places: Data, itemsize: int, threads: Data, what: str) -> tuple[Data, Data]:
        """The places of single bytes, and the thread of each. `places` are those of first bytes."""
        if places.size and (int(places.min()) < 0 or int(places.max()) + itemsize > len(self.bytes)):
            raise Race(f"{what} outside of the {len(self.bytes)} bytes of shared memory")
        each = (places[..., None] + np.arange(itemsize)).reshape(-1)
        return each, np.repeat(threads.reshape(-1), itemsize)

    def _check(self, conflict: Data, places: Data, message: str) -> None:
        if conflict.any():
            raise Race(f"byte {int(places[conflict][0])}: {message}")

    def write(self, places: Data, values: Data, threads: Data) -> None:
        """Elements at bytes, each by a thread."""
        where, who = self._bytes(places, values.dtype.itemsize, threads, "a write")
        self._before_write(where, who)
        self._put(where, who, np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def _before_write(self, where: Data, who: Data) -> None:
        if len(np.unique(where)) != len(where):
            raise Race("two threads write one byte at once")
        self._check(self.writes.by_others(where, who, self.now), where, "written by two threads without a barrier")
        self._check(self.reads.by_others(where, who, self.now), where, "written while another thread may read it")
        self._check(self.coming[where] > 0, where, "written while a copy is on its way there")
        self._check(self.multiplied[where] > 0, where, "written while a warp group may read it")

    def _put(self, where: Data, who: Data, values: Data) -> None:
        self.bytes[where] = values
        self.written[where] = True
        self.writes.mark(where, who, self.now)
        self.proxy[where] = _UNFENCED

    def read(self, places: Data, dtype: np.dtype[Any], threads: Data) -> Data:
        """Elements at bytes, each for a thread."""
        where, who = self._bytes(places, dtype.itemsize, threads, "a read")
        self._check(~self.written[where], where, "read before anything has been written")
        self._check(self.coming[where] > 0, where, "read while a copy is on its way there")
        self._check(self.writes.by_others(where, who, self.now), where, "read without a barrier behind the write")
        self.reads.mark(where, who, self.now)
        return np.ascontiguousarray(self.bytes[where]).view(dtype).reshape(places.shape)

    # ---- warp groups

    def multiply(self, places: Data, dtype: np.dtype[Any]) -> Data:
        """Elements at bytes, which warp groups read until their product has been waited for."""
        where, _ = self._bytes(places, dtype.itemsize, np.full(places.shape, _MANY), "a product")
        self._check(~self.written[where], where, "multiplied before anything has been written")
        self._check(self.coming[where] > 0, where, "multiplied while a copy is on its way there")
        self._check(self.proxy[where] != _SEEN, where, "multiplied with no fence and barrier behind the write")
        self.multiplied[where] += 1
        self.products[-1] = np.concatenate([self.products[-1], where])
        return np.ascontiguousarray(self.bytes[where]).view(dtype).reshape(places.shape)

    def begin_product(self) -> None:
        self.products.append(np.zeros(0, np.int64))

    def end_products(self, pending: int) -> None:
        """All but the last so many have been computed, as far as the threads of each group know."""
        while len(self.products) > pending:
            where = self.products.pop(0)
            self.multiplied[where] -= 1
            self.reads.mark(where, np.full(len(where), _MANY), self.now)

    # ---- copies

    def copy(self, places: Data, values: Data, threads: Data) -> None:
        """Elements that arrive when their group is waited for."""
        where, who = self._bytes(places, values.dtype.itemsize, threads, "a copy")
        self._before_write(where, who)
        self.coming[where] += 1
        self.groups[-1].append(_Copy(where, who, np.ascontiguousarray(values).reshape(-1).view(np.uint8)))

    def commit(self) -> None:
        self.groups.append([])

    def wait(self, pending: int) -> None:
        """All groups but the last so many arrive; what has not been committed stays on its way."""
        while len(self.groups) - 1 > pending:
            for copy in self.groups.pop(0):
                self.coming[copy.places] -= 1
                self._put(copy.places, copy.threads, copy.values)

    def finish(self) -> None:
        """At the end of a program nothing is on its way."""
        if (self.coming > 0).any():
            raise Race("the program ends while copies are on their way")
        if self.products:
            raise Race("the program ends while warp groups multiply")
