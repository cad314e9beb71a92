"""The default device: where tensors are made that nobody says a device for, if `torch.set_default_device` was called.

PyTorch has a function mode for it, which rewrites every call of a factory. A version depends on it
(`guard_kinds.STATES`); what capture makes for itself, and compiled graphs, which name all their devices, run without.
Neighbours: `frames.py` (runs capture and graphs without it); the values of `capture/values/` say what a program reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext


def default_device() -> torch.device | None:
    """The device, where one has been set."""
    if not torch._C._len_torch_function_stack():
        return None
    mode = torch._C._get_function_stack_at(0)
    return mode.device if isinstance(mode, DeviceContext) else None


def without_default_device() -> contextlib.AbstractContextManager[None]:
    """Keeps it from what is made for ourselves; what the program makes is told its device."""
    return contextlib.nullcontext() if default_device() is None else torch._C.DisableTorchFunction()


def called_without_default_device(compiled: Callable[..., Any], *args: Any) -> Any:
    """Runs a graph so."""
    with without_default_device():
        return compiled(*args)
