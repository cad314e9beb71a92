"""Python's garbage collector, kept from walking what importing and compiling make.

A walk over everything takes some tenths of a second beside large libraries. Of what one graph's compiling makes about
half is garbage afterwards, in cycles: that is left until there are so many objects that a walk is worth it, as Python
by itself does, whose count of new objects does not see those made here.
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
#: Objects that are made in pauses until the next walk over everything, or as many as there were after the last one.
_WORTH_A_WALK: Final = 2_000_000
_made = 0  # since the last one
_alive = 0  # after it


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
                _take_as_old()


def _take_as_old() -> None:
    """Have no collection but a whole one walk over what there is, and walk over all of it once in a while."""
    global _alive, _made
    _made += gc.get_count()[0]
    if _made > max(_WORTH_A_WALK, _alive):
        gc.collect()
        _made, _alive = 0, len(gc.get_objects())
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
