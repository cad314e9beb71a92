"""The passes from a kernel's tile IR to tile IR with layouts, in order.

A pass is a record: a name, what it does to the function, and whether it works before or behind `assign`, which gives
layouts. Neighbours: each pass has a file; a back end takes what comes out.
"""

from __future__ import annotations

from stator.tile.cpu.prepare import prepare
from stator.tile.gpu.allocate import allocate
from stator.tile.gpu.assign import assign
from stator.tile.gpu.barriers import insert_barriers
from stator.tile.gpu.operators import verify
from stator.tile.ir.core import Module


def lower(module: Module, name: str, num_warps: int = 4, num_stages: int = 3) -> Module:
    """The kernel of a module with layouts, verified: one function, whose attributes have `num_warps` and `shared`."""
    function = assign(prepare(module, name, sums=False), num_warps)
    allocate(function)
    insert_barriers(function)
    lowered = Module({name: function})
    verify(lowered)
    return lowered
