"""Python's garbage collector, kept from walking what importing and compiling make: nearly all of it stays alive.

A walk over everything takes a tenth of a second beside large libraries, and nothing would be freed.
Neighbours: `stator/__init__.py`, `capture/entry.py` and `capture/frames.py` pause it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
            if was_on and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
