"""Sentences that are said once a process, as warnings.

What is accepted and has no effect is said so, and not at every call of `compile`; that a function is slower than eager,
not for each of its graphs. `stator.reset()` forgets what was said. Neighbours: `options.py`, `stator/speed.py`.
"""

from __future__ import annotations

import sys
import warnings

from stator.base import log
from stator.base.errors import OptionWarning, StatorWarning

_said: set[str] = set()


def announce(text: str, category: type[StatorWarning] = OptionWarning, key: str = "") -> None:
    """Warn, once for a key (by default the text), placed at the first caller outside of stator and torch."""
    key = key or text
    if key in _said:
        return
    _said.add(key)
    log.record(log.NOTE, text=text)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("stator", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def forget() -> None:
    """Say everything again."""
    _said.clear()
