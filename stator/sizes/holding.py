"""Keeping interned sizes alive: they are known by weak references alone.

Neighbours: `size.py` tells of what it makes; `capture/entry.py` holds it for one compilation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: What is kept for those who hold sizes, the latest of them last.
_HELD: list[list[object]] = []


@contextmanager
def held() -> Iterator[None]:
    """Sizes made in here live as long as it lasts, so that what is found out about them is not found out again."""
    made: list[object] = []
    _HELD.append(made)
    try:
        yield
    finally:
        _HELD[:] = [other for other in _HELD if other is not made]


def hold(made: object) -> None:
    """Keeps a size for whoever holds what is made."""
    for kept in _HELD[-1:]:
        kept.append(made)
