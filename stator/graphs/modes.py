"""Modes of the thread and switches of the process that calls of a graph turn: gradients, autocast, attention's kernels.

Whoever runs such a graph to look at it, or may fail in its middle, puts them back. Neighbours:
`capture/values/torch/switches.py` (records the calls), `aot/trace.py` and `backends/atomic.py` (run them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.amp import autocast_mode

#: Names of the kernels that attention may use, which programs switch on and off (`torch.nn.attention.sdpa_kernel`).
ATTENTION_KERNELS = ("flash", "mem_efficient", "math", "cudnn", "overrideable")


class Accessors(NamedTuple):
    """What turns a switch, and what reads it."""

    turn: Any
    read: Any


#: By the kernel of attention that each allows, and the order in which kernels are tried, where this version has one.
SWITCHES = {
    name: Accessors(getattr(torch._C, turn), getattr(torch._C, read))
    for name, turn, read in (
        *((name, f"_set_sdp_use_{name}", f"_get_{name}_sdp_enabled") for name in ATTENTION_KERNELS),
        ("priority", "_set_sdp_priority_order", "_get_sdp_priority_order"),
    )
    if hasattr(torch._C, turn)
}

#: Calls that turn a mode.
TURNING = {torch._C._set_grad_enabled, autocast_mode._enter_autocast, *(switch.turn for switch in SWITCHES.values())}


class Modes:
    """All of them as they are, autocast for some types of devices."""

    __slots__ = ("cache", "casts", "grad", "nesting", "switches")

    def __init__(self, devices: Sequence[str]) -> None:
        self.grad = torch.is_grad_enabled()
        self.casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in devices]
        self.cache = torch.is_autocast_cache_enabled()
        self.nesting = _nesting()
        self.switches = [(turn, read()) for turn, read in SWITCHES.values()]

    def put_back(self) -> None:
        """Turns all of them back."""
        torch._C._set_grad_enabled(self.grad)
        for kind, enabled, dtype in self.casts:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        while _nesting() > self.nesting:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        for turn, value in self.switches:
            turn(value)


def _nesting() -> int:
    """How many autocast contexts the thread is in."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


@contextmanager
def kept(devices: Sequence[str]) -> Iterator[None]:
    """Leaves the modes as they are, whatever is done inside."""
    modes = Modes(devices)
    try:
        yield
    finally:
        modes.put_back()
