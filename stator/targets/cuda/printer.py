"""Kernels for a GPU, as one file of Triton's language.

Neighbours: `codegen/triton` prints, `kernel/blocks.py` and `kernel/matmul.py` decide, `autotune.py` measures;
`toolchain.py` compiles what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stator.base.device import Device
from stator.base.options import Options
from stator.codegen import triton
from stator.kernel.matmul import Tiling
from stator.loop.kernel import Kernel
from stator.runtime.artifact import Unit
from stator.targets.cuda import autotune

SUFFIX, COMMENT = "py", "#"


def emit(kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
    """One unit, whose kernels compile side by side; under `autotune` with products in the tilings that are fastest."""
    tilings = _tilings(kernels, device, options)
    return [Unit(triton.emit(kernels, device, names, options.verify, tilings), tuple(names), (), "triton")]


def reason(kernel: Kernel, device: Device, options: Options) -> str:
    """What `blocks` or `matmul` chose, or was measured."""
    plan = triton.plan_of(kernel, device, _tilings([kernel], device, options).get(kernel))
    return plan.reason(device)


def _tilings(kernels: Sequence[Kernel], device: Device, options: Options) -> Mapping[Kernel, Tiling]:
    """What was measured, where that was asked for."""
    if not options.autotune:
        return {}
    return {kernel: found.tiling for kernel, found in autotune.tilings(kernels, device, options).items()}
