"""What kernels for NVIDIA's devices import: libdevice, and counters of the device, which are refused elsewhere."""

from __future__ import annotations

from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.extra import libdevice

__all__ = [
    "gdc_launch_dependents", "gdc_wait", "globaltimer", "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip


def _refuse(name: str) -> Any:
    raise InvalidUse(
        f"{name} is not supported: it asks an NVIDIA device, and kernels run in the interpreter",
        "guard it with a constexpr parameter",
    )


def globaltimer() -> Any:
    """Refused: the device's clock."""
    return _refuse("globaltimer")


def smid() -> Any:
    """Refused: which multiprocessor runs the program."""
    return _refuse("smid")


def num_threads() -> Any:
    """Refused: how many threads run a program."""
    return _refuse("num_threads")


def num_warps() -> Any:
    """Refused: how many warps run a program."""
    return _refuse("num_warps")


def gdc_wait() -> Any:
    """Refused: waits for the kernel before this one."""
    return _refuse("gdc_wait")


def gdc_launch_dependents() -> Any:
    """Refused: lets the kernel behind this one begin."""
    return _refuse("gdc_launch_dependents")
