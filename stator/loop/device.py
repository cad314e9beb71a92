"""The device record: the few numbers that decisions in `loop` are made from.

Whoever compiles for a device fills one; `Device.of` has typical values. Nothing in `loop` asks a device itself, so the
same program can be scheduled for a machine that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """`cores` are threads on a CPU, multiprocessors on a GPU; `launch_cost` is in seconds, `bandwidth` in bytes/s."""

    kind: str
    cores: int
    vector_bytes: int
    cache_bytes: int
    launch_cost: float
    bandwidth: float
    max_nodes: int = 400  # expression nodes of a kernel, which bounds compile time and registers
    max_params: int = 48
    min_split: int = 1 << 16  # elements read by a reduction that is worth two kernels

    @staticmethod
    def of(kind: str, cores: int = 0) -> Device:
        """A typical device of a kind ("cpu" or "cuda")."""
        if kind == "cuda":
            return Device("cuda", cores or 132, 16, 50 << 20, 3e-6, 3e12)
        return Device("cpu", cores or 4, 64, 1 << 20, 3e-6, 2e10)
