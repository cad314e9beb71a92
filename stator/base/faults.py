"""Faults of stator that a program survives: where compiling, or compiled code, fails and eager PyTorch does not.

One place counts them. Whoever goes on in eager for such a reason calls `report`, which counts, logs (`log.FAULT`) and
remembers; what is told to the user is the caller's part. A data error, which eager raises too, is no fault. `total()`
and `recent()` are what tests and tables read: any number but 0 is a failure there, since results cannot show it.
Neighbours: `capture/recovery.py` (calls), `capture/entry.py` (compiling), `aot/runtime.py` (backward).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

from stator.base import log
from stator.base.errors import Location

#: How many faults are remembered with what is known of them.
REMEMBERED: Final = 256


class Fault(NamedTuple):
    """One function that ran in eager because stator failed."""

    #: What failed: "compile", "call" or "backward".
    stage: str
    function: str
    location: Location | None
    #: Our exception, as text.
    error: str
    #: The folder with what it takes to see it again.
    artifacts: str = ""
    #: Whether it is a later call of what had failed before.
    later: bool = False

    def __str__(self) -> str:
        place = f" ({self.location})" if self.location is not None else ""
        return f"{self.stage} of {self.function}{place}: {self.error}"


_lock = threading.Lock()
_recent: deque[Fault] = deque(maxlen=REMEMBERED)
_count = 0


def report(fault: Fault) -> None:
    """Counts a fault and notes it in the log."""
    global _count
    with _lock:
        _count += 1
        _recent.append(fault)
    place = fault.location
    log.count(faults=1)
    log.record(
        log.FAULT, stage=fault.stage, function=fault.function, error=fault.error, artifacts=fault.artifacts,
        file=place.file if place else "", line=place.line if place else 0, later=fault.later,
    )  # fmt: skip


def total() -> int:
    """How many there have been in this process."""
    return _count


def recent(since: int = 0) -> list[Fault]:
    """Those that came after `total()` was `since`, as far as they are remembered."""
    with _lock:
        new = min(_count - since, len(_recent))
        return list(_recent)[len(_recent) - new :] if new else []
