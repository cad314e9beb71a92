"""Kernels to a Python file of Triton functions and what launches need to know of them.

Neighbours: `kernel/blocks.py` decides, `kernel/strategies.py` makes the functions, `printer` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from stator.base.device import Device
from stator.codegen.triton.attention import attention_launch, attention_text
from stator.codegen.triton.instructions import INSTRUCTIONS
from stator.codegen.triton.launches import OVERLAPS, launch_text
from stator.codegen.triton.matmul import HELPERS, matmul_launch, matmul_text
from stator.codegen.triton.operators import ONLINE, PREAMBLE
from stator.codegen.triton.printer import function_text
from stator.kernel import ir
from stator.kernel.attention import AttentionPlan, Rows, plan_attention
from stator.kernel.blocks import BlockPlan, choose
from stator.kernel.matmul import Matmul, Tiling, matmul_of, plan_matmul
from stator.kernel.strategies import blocks, tiles
from stator.kernel.verify import verify
from stator.loop.kernel import Kernel, kernel_name

#: How much a program of a product, or of attention, takes at once.
Shape: TypeAlias = Tiling | Rows


def emit(
    kernels: Sequence[Kernel],
    device: Device,
    names: Sequence[str] = (),
    check: bool = False,
    shapes: Mapping[Kernel, Shape] = MappingProxyType({}),
    rounds: bool = True,
) -> str:
    """A Python file with functions called k0, k1, … where they have no names, and what launches need to know of each.

    Products and attention have the given `shapes`, others one by rule. Without `rounds`, results need not be rounded as
    eager's are. With `check` it raises GrammarError where the kernel IR breaks its rules.
    """
    parts = [PREAMBLE, INSTRUCTIONS[device.assembly]]
    plans = [plan_of(kernel, device, shapes.get(kernel)) for kernel in kernels]
    functions: list[ir.Function] = []
    texts: list[str] = []
    launches: list[str] = []
    more: dict[str, object] = {OVERLAPS: True} if device.overlaps else {}
    for plan, name in zip(plans, names or map(kernel_name, range(len(kernels))), strict=True):
        if isinstance(plan, AttentionPlan):
            texts.append(attention_text(plan, name))
            launches.append(attention_launch(plan, name, device.warp, more))
        elif isinstance(plan, Matmul):
            functions.append(tiles(plan, name))
            texts.append(matmul_text(plan, functions[-1], rounds))
            launches.append(matmul_launch(plan, functions[-1], device.warp, more))
        else:
            functions.append(blocks(plan, name))
            texts.append(function_text(functions[-1], plan.stages, plan.kept, rounds))
            launches.append(launch_text(functions[-1], device.warp, more=more))
    if any(isinstance(statement, ir.Online) for function in functions for statement in ir.walk(function.body)):
        parts.append(ONLINE)
    if any(isinstance(plan, Matmul) for plan in plans):
        parts.append(HELPERS)
    for function in functions if check else ():
        verify(function)
    texts = [_waiting(text) for text in texts] if device.overlaps else texts
    return "\n\n".join([*parts, *texts, "\n".join(["LAUNCHES = {", *launches, "}\n"])])


def _waiting(text: str) -> str:
    """A kernel that first waits for the one before it: its blocks may be there while that one's are ending."""
    head, end, body = text.partition("):\n")
    return f"{head}{end}    _after_previous()\n{body}"


def plan_of(kernel: Kernel, device: Device, shape: Shape | None = None) -> Matmul | AttentionPlan | BlockPlan:
    """How a kernel runs: as tiles of a product or rows of attention, of this shape or by rule, or in blocks."""
    if kernel.attention is not None:
        return plan_attention(kernel, device, shape if isinstance(shape, Rows) else None)
    product = matmul_of(kernel, device)
    if product is None:
        return choose(kernel, device)
    return plan_matmul(kernel, product, device, shape if isinstance(shape, Tiling) else None)
