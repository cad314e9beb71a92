"""Kernels to a Python file of Triton functions and what launches need to know of them.

Neighbours: `kernel/blocks.py` decides, `kernel/strategies.py` makes the functions, `printer` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.base.device import Device
from stator.codegen.triton.operators import ONLINE, PREAMBLE
from stator.codegen.triton.printer import function_text, launch_text
from stator.kernel import ir
from stator.kernel.blocks import choose
from stator.kernel.strategies import blocks
from stator.kernel.verify import verify
from stator.loop.kernel import Kernel, kernel_name


def emit(kernels: Sequence[Kernel], device: Device, names: Sequence[str] = (), check: bool = False) -> str:
    """A Python file with functions called k0, k1, … where they have no names, and what launches need to know of each.

    With `check` it raises GrammarError where the kernel IR breaks its rules.
    """
    parts = [PREAMBLE]
    named = zip(kernels, names or map(kernel_name, range(len(kernels))), strict=True)
    functions = [blocks(choose(kernel, device), name) for kernel, name in named]
    if any(isinstance(statement, ir.Online) for function in functions for statement in ir.walk(function.body)):
        parts.append(ONLINE)
    for function in functions if check else ():
        verify(function)
    launches = "\n".join(["LAUNCHES = {", *[launch_text(function, device.warp) for function in functions], "}\n"])
    return "\n\n".join([*parts, *[function_text(function, device.row_stages) for function in functions], launches])
