"""What differs between the makers of GPUs that Triton compiles for: names and numbers; kernels have the same text.

torch calls the GPUs of AMD `cuda` too, so which maker's those are is asked of torch. Those of Intel are a type of their
own, for which nothing launches kernels yet: they are submitted to queues, while the C core calls a function of the
driver. Instructions of PTX in the text of kernels have a plain form elsewhere (`codegen/triton/instructions.py`).
Neighbour: `record.py` has the numbers of a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

#: What Triton's atomics combine, by mode; what is put is not combined.
_ATOMICS = {"add": ("f32", "f64", "i32", "i64"), "mul": (), "maximum": ("i32", "i64"), "minimum": ("i32", "i64")}


@dataclass(frozen=True, slots=True)
class Platform:
    """One maker's, with the numbers of a typical device."""

    backend: str  # Triton's name of it
    kind: str  # torch's type of the device
    warp: int  # threads that go together
    binary: str  # Triton's name of the last stage, which is loaded
    assembly: str  # the language of instructions in the text of kernels; "" where they have none
    cores: int
    cache_bytes: int
    bandwidth: float
    registers: int  # of 32 bits, of a core

    @property
    def atomics(self) -> Mapping[str, tuple[str, ...]]:
        """What kernels may combine in memory."""
        return _ATOMICS

    def architecture(self, properties: Any) -> int | str:
        """Triton's name of the architecture of a device, of which these are torch's properties."""
        match self.backend:
            case "cuda":
                return 10 * int(properties.major) + int(properties.minor)
            case "hip":  # features follow a colon
                return str(properties.gcnArchName).partition(":")[0]
        return str(properties.architecture)


#: An H100.
NVIDIA = Platform("cuda", "cuda", 32, "cubin", "ptx", 132, 50 << 20, 3e12, 1 << 16)
#: An MI300X, whose wavefronts are of 64 threads.
AMD = Platform("hip", "cuda", 64, "hsaco", "", 304, 256 << 20, 5e12, 1 << 17)
#: A Max 1550: Xe cores of eight engines with 64 KiB of registers each.
INTEL = Platform("xpu", "xpu", 32, "zebin", "", 128, 408 << 20, 3e12, 1 << 17)
PLATFORMS = {platform.backend: platform for platform in (NVIDIA, AMD, INTEL)}


@cache
def current() -> Platform:
    """The maker of the GPUs that this torch calls `cuda`."""
    import torch  # no target imports it before it is asked

    return AMD if torch.version.hip else NVIDIA
