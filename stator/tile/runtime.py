"""What programs ask of the device that kernels run on: `triton.runtime.driver.active` and its neighbours.

Kernels run on the CPU, so the driver names that. What only a GPU's driver knows is refused by name.
Neighbours: `jit.py` and `autotune.py`, whose classes programs import from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stator.tile.autotune import Autotuner, Config, Heuristics, autotune, heuristics
from stator.tile.errors import InterpreterError, LaunchError, OutOfResources
from stator.tile.jit import JITFunction, KernelInterface
from stator.tile.testing import do_bench
from stator.tile.wrappers import MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "TensorWrapper", "autotune", "driver", "heuristics", "reinterpret",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are compiled for."""

    backend: str
    arch: str
    warp_size: int


class ActiveDriver:
    """The device of this process."""

    def get_active_torch_device(self) -> Any:
        """The device as PyTorch names it."""
        import torch

        return torch.device("cpu")

    def get_current_target(self) -> Target:
        """What kernels are compiled for: the interpreter of tile IR, on the CPU."""
        return Target("cpu", "interpreter", 1)

    def get_current_device(self) -> int:
        """The number of the device."""
        return 0

    def get_benchmarker(self) -> Any:
        """What autotuning times with."""
        return do_bench

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise LaunchError(f"driver.active.{name} is not supported: it asks a GPU's driver, and kernels run on the CPU")


class Driver:
    """The drivers that there are: one."""

    def __init__(self) -> None:
        self.active = ActiveDriver()


driver = Driver()
