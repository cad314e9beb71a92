"""Kernels to a Python file of Triton functions and what launches need to know of them.

Neighbours: `kernel/blocks.py` decides, `kernel/strategies.py` makes the functions, `printer` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stator.base.device import Device
from stator.codegen.triton.matmul import matmul_launch, matmul_text
from stator.codegen.triton.operators import ONLINE, PREAMBLE
from stator.codegen.triton.printer import function_text, launch_text
from stator.kernel import ir
from stator.kernel.blocks import BlockPlan, choose
from stator.kernel.matmul import Matmul, Tiling, matmul_of, planned
from stator.kernel.matmul import choose as choose_tiling
from stator.kernel.strategies import blocks, tiles
from stator.kernel.verify import verify
from stator.loop.kernel import Kernel, kernel_name


def emit(
    kernels: Sequence[Kernel],
    device: Device,
    names: Sequence[str] = (),
    check: bool = False,
    tilings: Mapping[Kernel, Tiling] = MappingProxyType({}),
) -> str:
    """A Python file with functions called k0, k1, … where they have no names, and what launches need to know of each.

    Products have the given `tilings`, others one by rule. With `check` it raises GrammarError where the kernel IR
    breaks its rules.
    """
    parts = [PREAMBLE]
    named = zip(kernels, names or map(kernel_name, range(len(kernels))), strict=True)
    functions: list[ir.Function] = []
    texts: list[str] = []
    launches: list[str] = []
    for kernel, name in named:
        plan = plan_of(kernel, device, tilings.get(kernel))
        if isinstance(plan, Matmul):
            functions.append(tiles(plan, name))
            texts.append(matmul_text(plan, functions[-1]))
            launches.append(matmul_launch(plan, functions[-1], device.warp))
        else:
            functions.append(blocks(plan, name))
            texts.append(function_text(functions[-1]))
            launches.append(launch_text(functions[-1], device.warp))
    if any(isinstance(statement, ir.Online) for function in functions for statement in ir.walk(function.body)):
        parts.append(ONLINE)
    for function in functions if check else ():
        verify(function)
    return "\n\n".join([*parts, *texts, "\n".join(["LAUNCHES = {", *launches, "}\n"])])


def plan_of(kernel: Kernel, device: Device, tiling: Tiling | None = None) -> Matmul | BlockPlan:
    """How a kernel runs: as tiles of a product, of this tiling or by rule, or in blocks."""
    product = matmul_of(kernel, device)
    if product is None:
        return choose(kernel, device)
    if tiling is not None:
        return planned(kernel, product, tiling, device)
    return choose_tiling(kernel, product, device)
