"""Python's garbage collector, kept from walking what importing and compiling make: nearly all of it stays alive.

A walk over everything takes a tenth of a second beside large libraries, and nothing would be freed.
Neighbours: `stator/__init__.py`, `capture/entry.py` and `capture/frames.py` pause it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: How many times frozen objects are taken to stay frozen, once there were some: to count them, Python walks over all.
_TAKEN_TO_STAY: Final = 100
_untold = 0  # how many times that is, from now on


@contextmanager
def stopped() -> Iterator[None]:
    """No collection in here."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def paused() -> Iterator[None]:
    """No collection in here, nor are the objects made in here walked as new ones afterwards.

    They go on as old ones, unless the user has frozen others.
    """
    was_on = gc.isenabled()
    with stopped():
        try:
            yield
        finally:
            if was_on and not _user_has_frozen():
                gc.freeze()
                gc.unfreeze()


def _user_has_frozen() -> bool:
    """Whether there are frozen objects; where there were, so it is for the next hundred times."""
    global _untold
    if _untold:
        _untold -= 1
        return True
    frozen = gc.get_freeze_count() > 0
    _untold = _TAKEN_TO_STAY if frozen else 0
    return frozen
