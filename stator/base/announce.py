"""Sentences that are said once a process, as warnings.

What is accepted and has no effect is said so, and not at every call of `compile`. `stator.reset()` forgets what was
said. Neighbour: `options.py`.
"""

from __future__ import annotations

import sys
import warnings

from stator.base import log
from stator.base.errors import OptionWarning

_said: set[str] = set()


def announce(text: str) -> None:
    """Warn, placed at the first caller outside of stator; the same text a second time is nothing."""
    if text in _said:
        return
    _said.add(text)
    log.record(log.NOTE, text=text)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "stator":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, OptionWarning, stacklevel=level)


def forget() -> None:
    """Say everything again."""
    _said.clear()
