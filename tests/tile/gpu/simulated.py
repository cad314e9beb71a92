"""Kernels run thread by thread beside the interpreter of tile IR, whose results they have to give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stator.tile import launch
from stator.tile.arguments import Argument
from stator.tile.frontend.kernel import Compiled
from stator.tile.gpu.operators import parse, text, verify
from stator.tile.gpu.pipeline import lower
from stator.tile.gpu.simulate.threads import run as simulate
from stator.tile.interpret.memory import Memory
from stator.tile.ir.core import Module
from stator.tile.live import LiveMemory
from tests.tile.interpret.cases import Case, Data

#: Of a thread, for products of warp groups.
GROUP_REGISTERS = 200


def lowered(module: Module, name: str, warps: int = 4, stages: int = 3) -> Module:
    """A kernel with layouts, which goes through text and the verifier as it is."""
    found = lower(module, name, warps, stages, group_registers=GROUP_REGISTERS)
    again = parse(text(found))
    verify(again)
    assert text(again) == text(found)
    return again


def run_case(case: Case, warps: int) -> list[Data]:
    """What the threads of a program give of a case."""
    module, results = case.module()
    arrays = [np.array(data) for _, data in case.operands]
    arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
    run_arrays(lowered(module, "main", warps), "main", arrays)
    return arrays[len(case.operands) :]


def run_arrays(module: Module, name: str, arguments: Sequence[Any], grid: Sequence[int] = (1, 1, 1)) -> None:
    """A kernel with layouts, on arrays and numbers."""
    memory, numbers = Memory(), []
    for i, argument in enumerate(arguments):
        is_array = isinstance(argument, np.ndarray)
        numbers.append(memory.add_array(argument, str(i)) if is_array else argument)
    simulate(module, name, numbers, memory, grid)


def run_threads(compiled: Compiled, code: Any, arguments: Mapping[str, Argument], grid: tuple[int, int, int]) -> None:
    """In place of `launch.run_module`."""
    options = compiled.module.functions[compiled.name].attrs
    module = lowered(compiled.module, compiled.name, options.get("num_warps", 4), options.get("num_stages", 3))
    memory = launch.memory_of(arguments, LiveMemory() if compiled.makes_pointers else Memory())
    numbers = [number for argument in arguments.values() for number in argument.numbers]
    simulate(module, compiled.name, numbers, memory, grid)
