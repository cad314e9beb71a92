"""The generators of random numbers that a call takes numbers from: remembered, and put back if the call fails.

A call that fails runs again by the original, which must find the random state of its start. Neighbours: `runtime.py`
(calls of compiled graphs), `eager_replay.py`, and `backends/atomic.py` (graphs that others run).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

R = TypeVar("R")


def generator(device: torch.device) -> torch.Generator:
    """Torch's default generator of a device."""
    if device.type == "cpu":
        return torch.default_generator
    module: Any = getattr(torch, device.type)
    found: torch.Generator = module.default_generators[
        device.index if device.index is not None else module.current_device()
    ]
    return found


def restoring(devices: Sequence[torch.device], function: Callable[..., R], *args: Any) -> R:
    """`function(*args)`; if it raises, the generators of these devices are as before."""
    states = [(found, found.get_state()) for found in map(generator, devices)]
    try:
        return function(*args)
    except BaseException:
        for found, state in states:
            found.set_state(state)
        raise
