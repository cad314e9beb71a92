"""Decides how large a piece of a kernel one block of a GPU's threads takes.

A pointwise kernel is one flat range cut into blocks of `x`. A reduction is a block of `x` outer points by `r` points of
the reduce axes; where `r` covers all of them, every value is loaded once and kept in registers. The numbers follow
from the kernel's sizes and from which axis is contiguous. Symbolic sizes count as what they were in the first call, and
a row of symbolic length is always walked in a loop. Neighbours: `strategies`; `decisions` is for vectors.
"""

from __future__ import annotations

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.base.records import dataclass
from stator.kernel.decisions import pieces_of, used_by_several_loops
from stator.loop.expr import Expr
from stator.loop.kernel import Kernel
from stator.sizes import hint

LOOP = 2048  # elements of a longer row that are taken at once


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The decisions for one kernel: points of a block, both powers of two, its threads, and how it reads a row."""

    kernel: Kernel
    x: int
    r: int
    threads: int
    staged: tuple[Expr, ...] = ()
    online: bool = False  # whether one loop over a row reduces what takes two if each is on its own

    def reason(self, device: Device) -> str:
        """The decisions in a line."""
        count = pieces_of(hint(self.kernel.outer_numel), self.x)
        size = f"{self.x} by {self.r}" if self.kernel.reduce_axes else f"{self.x}"
        kept = f", {len(self.staged)} values of a row kept" if self.staged else ", in one loop" * self.online
        return f"{count} blocks of {size} by {self.threads} threads, of which {device.programs} fill the device{kept}"


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def choose(kernel: Kernel, device: Device) -> BlockPlan:
    """The blocks of a kernel."""
    outer, reduced = hint(kernel.outer_numel), hint(kernel.reduce_numel)
    if not kernel.reduce_axes:
        size = _shared(min(1024, power_of_two(outer)), 128, outer, device)
        return BlockPlan(kernel, size, 1, device.warp * max(1, min(4, size // 128)))
    fixed = type(kernel.reduce_numel) is int
    if _columns(kernel):
        x = _shared(min(device.columns, power_of_two(outer)), 16, outer, device)
        r, warps = min(64, power_of_two(reduced)), 4
    elif (r := power_of_two(reduced) if fixed else min(power_of_two(reduced), LOOP)) > device.row_elements:
        x, r, warps = 1, LOOP, 8
    else:
        x = _shared(min(power_of_two(outer), max(1, 1024 // r)), 1, outer, device)
        warps = max(1, min(16, x * r // 256))
    whole = fixed and r >= reduced
    online = not whole and x * _row_bytes(kernel) >= device.near_bytes
    return BlockPlan(kernel, x, r, device.warp * warps, _staged(kernel) if whole else (), online)


def _shared(size: int, least: int, points: int, device: Device) -> int:
    """A size of blocks, smaller where there would be too few of them."""
    while size > least and pieces_of(points, size) < device.programs:
        size //= 2
    return size


def _row_bytes(kernel: Kernel) -> int:
    loads = [node for node in kernel.nodes if node.op == "load" and node in kernel.inner]
    return hint(kernel.reduce_numel) * sum([ITEMSIZE[load.dtype] for load in loads])


def _staged(kernel: Kernel) -> tuple[Expr, ...]:
    """What a block that has a whole row computes for several loops over it."""
    return tuple([node for node in used_by_several_loops(kernel) if node.op != "const" and node in kernel.inner])


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
