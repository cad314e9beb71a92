"""The passes from a kernel's tile IR to tile IR with layouts, in order.

A pass is a name and what it does to a function, by the options of the launch: it changes the function, or gives another
one. `STATOR_TILE_PASSES=<kernel>` prints that kernel behind each pass. A target that has more units (warp groups,
copies of tiles) puts passes of its own into the table. Neighbours: each pass has a file; a back end takes the result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from stator.tile.cpu.prepare import prepare
from stator.tile.gpu.allocate import allocate
from stator.tile.gpu.assign import assign
from stator.tile.gpu.barriers import insert_barriers
from stator.tile.gpu.operands import buffer_operands
from stator.tile.gpu.operators import GPU_OPERATORS, verify
from stator.tile.gpu.pipelining import pipeline_loops
from stator.tile.gpu.prefetch import prefetch_products
from stator.tile.gpu.simplify import join_equal, leave_loops, remove_unused, write_out_single_turns
from stator.tile.ir.core import Function, Module
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.text import module_text


@dataclass(frozen=True)
class Choices:
    """What a launch chooses: how many warps a program has, and how many turns of a loop are on their way; and how many
    registers of a thread a warp group's product may take, 0 where the target has no such products."""

    num_warps: int = 4
    num_stages: int = 3
    group_registers: int = 0


@dataclass(frozen=True)
class Pass:
    """`run` gives another function, or None where it has changed the one it was given."""

    name: str
    run: Callable[[Function, Choices], Function | None]
    has_layouts: bool = True  # behind it


PASSES: tuple[Pass, ...] = (
    Pass("join", lambda function, choices: join_equal(function, OPERATORS), has_layouts=False),
    Pass("write_out", lambda function, choices: write_out_single_turns(function), has_layouts=False),
    Pass("assign", lambda function, choices: assign(function, choices.num_warps, choices.group_registers)),
    Pass("join_laid_out", lambda function, choices: join_equal(function, GPU_OPERATORS)),
    Pass("leave_loops", lambda function, choices: leave_loops(function, GPU_OPERATORS)),
    Pass("pipeline", lambda function, choices: pipeline_loops(function, choices.num_stages)),
    Pass("prefetch", lambda function, choices: prefetch_products(function)),
    Pass("operands", lambda function, choices: buffer_operands(function)),
    Pass("join_copied", lambda function, choices: join_equal(function, GPU_OPERATORS)),
    Pass("leave_loops_copied", lambda function, choices: leave_loops(function, GPU_OPERATORS)),
    Pass("remove_unused", lambda function, choices: remove_unused(function, GPU_OPERATORS)),
    Pass("allocate", lambda function, choices: allocate(function)),
    Pass("barriers", lambda function, choices: insert_barriers(function)),
)


def lower(
    module: Module,
    name: str,
    num_warps: int = 4,
    num_stages: int = 3,
    after: Callable[[Pass, Module], None] | None = None,
    group_registers: int = 0,
) -> Module:
    """The kernel of a module with layouts, verified: one function, whose attributes have `num_warps` and `shared`.

    `after` is called behind each pass, with the module as it is then.
    """
    choices = Choices(num_warps, num_stages, group_registers)
    function = prepare(module, name, sums=False)
    printed = os.environ.get("STATOR_TILE_PASSES") == name
    for each in PASSES:
        function = each.run(function, choices) or function
        current = Module({name: function})
        if printed:
            operators = GPU_OPERATORS if each.has_layouts else OPERATORS
            print(f"# behind {each.name}\n{module_text(current, operators=operators)}", file=sys.stderr)
        if after is not None:
            after(each, current)
    lowered = Module({name: function})
    verify(lowered)
    return lowered
