"""Kernels for a GPU, as one file of Triton's language.

Neighbours: `codegen/triton` prints, `kernel/blocks.py` and `kernel/matmul.py` decide, `autotune.py` measures;
`toolchain.py` compiles what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stator.base.device import Device
from stator.base.options import Options
from stator.codegen import triton
from stator.loop.kernel import Kernel
from stator.runtime.artifact import Unit
from stator.targets.cuda import autotune

SUFFIX, COMMENT = "py", "#"


def emit(kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
    """One unit, whose kernels compile side by side; under `autotune` in the shapes that were the fastest."""
    shapes = _shapes(kernels, device, options)
    return [
        Unit(triton.emit(kernels, device, names, options.verify, shapes, options.rounds), tuple(names), (), "triton")
    ]


def reason(kernel: Kernel, device: Device, options: Options) -> str:
    """What `kernel/` chose, or was measured."""
    return triton.plan_of(kernel, device, _shapes([kernel], device, options).get(kernel)).reason(device)


def _shapes(kernels: Sequence[Kernel], device: Device, options: Options) -> Mapping[Kernel, triton.Shape]:
    """What was measured, where that was asked for."""
    if not options.autotune:
        return {}
    return {kernel: found.shape for kernel, found in autotune.shapes(kernels, device, options).items()}
