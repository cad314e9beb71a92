"""Loops over single elements, as the kernel IR prints; a unit a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from stator.base.device import Device
from stator.base.options import Options
from stator.kernel.strategies import serial
from stator.kernel.text import function_text
from stator.loop.kernel import Kernel
from stator.runtime.artifact import Unit

SUFFIX, COMMENT = "py", "#"


def emit(kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
    texts = [function_text(serial(kernel, name)) for kernel, name in zip(kernels, names, strict=True)]
    return [Unit(text, (name,), (), "kernel IR") for text, name in zip(texts, names, strict=True)]


def reason(kernel: Kernel, device: Device, options: Options) -> str:
    return "a toy takes one element at a time"
