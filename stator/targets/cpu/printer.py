"""Kernels for the host: C++ with vectors and threads, or plain C where `cpu_kernels` asks for it.

Neighbours: `codegen/cpp` and `codegen/c` print, `kernel/decisions.py` decides; `toolchain.py` compiles what comes out.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from stator.base.device import Device
from stator.base.options import Options
from stator.base.processor import identity
from stator.codegen import c, cpp
from stator.kernel.decisions import decide
from stator.loop.kernel import Kernel
from stator.runtime.artifact import Unit

SUFFIX, COMMENT = "cpp", "//"


def emit(kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
    """One unit of plain C, or as many of C++ as their length asks for."""
    if options.cpu_kernels == "c":
        return [Unit(c.emit(kernels, names, options.verify), tuple(names), c.FLAGS)]
    return [Unit(text, part, flags(device)) for text, part in cpp.emit_units(kernels, device, names)]


def reason(kernel: Kernel, device: Device, options: Options) -> str:
    """What `decisions` chose for vectors."""
    return "one element at a time" if options.cpu_kernels == "c" else decide(kernel, device).reason(device)


def flags(device: Device) -> tuple[str, ...]:
    """What the compiler is told: also that it compiles for this machine, if the record is this one's."""
    if device.name != identity():
        return cpp.FLAGS
    arch = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native",)
    wide = ("-mprefer-vector-width=512",) if device.vector_bytes == 64 else ()
    return (*cpp.FLAGS, *arch, *wide)
