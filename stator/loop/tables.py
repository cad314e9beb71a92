"""The tables that make equal objects of the loop IR one object, and how long they live.

A table is a plain dict, so that interning costs one look-up. The tables belong to the compilations that are going on
(`session`): when the last one ends they are emptied, so a process that compiles for days holds what one compilation
needs. Objects from before that stay valid, but are not the same as equal ones made later: whoever compares objects
over several compilations opens a session around them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()
_tables: list[dict[Any, Any]] = []
_kept: list[tuple[dict[Any, Any], Any, Any]] = []
_sessions = 0


def table() -> dict[Any, Any]:
    """A new table."""
    made: dict[Any, Any] = {}
    _tables.append(made)
    return made


def keep(table: dict[Any, Any], key: Any) -> None:
    """Let an entry stay for good: modules hold it as a constant."""
    _kept.append((table, key, table[key]))


@contextmanager
def session() -> Iterator[None]:
    """Tables keep what is made in here; they are emptied when no session is open any more."""
    global _sessions
    with _lock:
        _sessions += 1
    try:
        yield
    finally:
        with _lock:
            _sessions -= 1
            if not _sessions:
                for made in _tables:
                    made.clear()
                for made, key, value in _kept:
                    made[key] = value


def size() -> int:
    """How many entries all tables have."""
    return sum(map(len, _tables))
