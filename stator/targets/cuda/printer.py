"""Kernels for a GPU, as one file of Triton's language.

Neighbours: `codegen/triton` prints, `kernel/blocks.py` decides; `toolchain.py` compiles what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.base.device import Device
from stator.base.options import Options
from stator.codegen import triton
from stator.kernel.blocks import choose
from stator.loop.kernel import Kernel
from stator.runtime.artifact import Unit

SUFFIX, COMMENT = "py", "#"


def emit(kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
    """One unit, whose kernels compile side by side."""
    return [Unit(triton.emit(kernels, device, names, options.verify), tuple(names), (), "triton")]


def reason(kernel: Kernel, device: Device, options: Options) -> str:
    """What `blocks` chose."""
    return choose(kernel, device).reason(device)
