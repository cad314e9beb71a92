"""How large a piece of a kernel one Triton program takes.

A pointwise kernel is one flat range cut into blocks of X. A reduction is a block of X outer points by R points of the
reduce axes; `persistent` means that R covers all of them, so that every value is loaded once and kept in registers.
The numbers follow from the kernel's sizes and from which axis is contiguous; measuring is a later step's business.
Symbolic sizes count as what they were in the first call, and a row of symbolic length is always walked in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.loop.kernel import Kernel
from stator.sizes import Extent, hint

PERSISTENT_ELEMENTS = 8192  # of a row, as registers of up to 16 warps hold them
LOOP = 2048  # elements of a longer row that are taken at once
PROGRAMS = 264  # two for each multiprocessor of a large GPU: fewer leave it idle


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block sizes are powers of two; `grid` is the number of programs."""

    x: int
    r: int
    persistent: bool
    warps: int
    grid: Extent


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def choose(kernel: Kernel) -> Blocks:
    """The blocks of a kernel."""
    outer, reduced = hint(kernel.outer_numel), hint(kernel.reduce_numel)
    fixed = type(kernel.reduce_numel) is int
    if not kernel.reduce_axes:
        size = min(1024, power_of_two(outer))
        while size > 128 and -(-outer // size) < PROGRAMS:
            size //= 2
        return Blocks(size, 1, True, max(1, min(4, size // 128)), _programs(kernel, size))
    if _columns(kernel):
        x = min(64, power_of_two(outer))
        r = min(64, power_of_two(reduced))
        while x > 16 and -(-outer // x) < PROGRAMS:
            x //= 2
        return Blocks(x, r, fixed and r >= reduced, 4, _programs(kernel, x))
    r = power_of_two(reduced) if fixed else min(power_of_two(reduced), LOOP)
    if r > PERSISTENT_ELEMENTS:
        return Blocks(1, LOOP, False, 8, kernel.outer_numel)
    x = min(power_of_two(outer), max(1, 1024 // r))
    while x > 1 and -(-outer // x) < PROGRAMS:
        x //= 2
    return Blocks(x, r, fixed, max(1, min(16, x * r // 256)), _programs(kernel, x))


def _programs(kernel: Kernel, x: int) -> Extent:
    return (kernel.outer_numel + x - 1) // x


def _columns(kernel: Kernel) -> bool:
    """Whether neighbours in memory lie along an outer axis rather than along the reduce axes."""
    if not kernel.axes or kernel.reduce_numel <= 1:
        return False
    outer, inner = kernel.axes[-1], kernel.reduce_axes[-1]
    votes = 0
    for node in kernel.nodes:
        if node.op == "load" and node in kernel.inner:
            position = node.attr[1]
            votes += (position.stride(outer) == 1) - (position.stride(inner) == 1)
    return votes > 0
