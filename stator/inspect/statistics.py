"""What this process has compiled so far, in numbers: always counted, at the cost of an addition a graph.

`explain` tells the story of one call; this is the sum over all. Neighbours: `base/log.py` keeps the totals, the driver
adds to them.
"""

from __future__ import annotations

from stator.base import log


def summary() -> dict[str, int]:
    """Captured graphs that were compiled or found in the store, distinct kernels in them, and operators they call."""
    return {name: log.totals[name] for name in ("graphs", "kernels", "externs")}
