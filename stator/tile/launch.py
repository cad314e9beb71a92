"""Runs the programs of a launch: a module by the interpreter of tile IR, or a kernel's text directly.

Both see the same memory, that of the tensors among the arguments, and touch nothing else.
Neighbours: `jit.py` launches; `stator.tile.interpret` computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from stator.tile.arguments import Argument
from stator.tile.cpu.entry import MachineCode
from stator.tile.errors import InvalidUse, LaunchError
from stator.tile.frontend.direct import function_of, located
from stator.tile.frontend.kernel import Compiled
from stator.tile.frontend.source import Source
from stator.tile.interpret.eager import Cell, EagerBuilder
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.language.context import Checks, Context, entered
from stator.tile.language.static import unwrap
from stator.tile.live import LiveMemory


def grid_sizes(grid: Any, meta: Mapping[str, Any]) -> tuple[int, int, int]:
    """The sizes of a grid: a tuple, a number, or what a function gives for the arguments of the launch."""
    found = grid(dict(meta)) if callable(grid) else grid
    found = unwrap(found)
    sizes = [unwrap(size) for size in (found if isinstance(found, tuple | list) else [found])]
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise LaunchError(f"a grid is one to three sizes, not {found!r}", "for instance `kernel[(n, m)](…)`")
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third


def on_the_cpu(kernel: str, device: int | None) -> None:
    """LaunchError where tensors of a GPU would be touched by the interpreter."""
    if device is not None:
        raise LaunchError(
            f"{kernel} is to be interpreted, which it can be on the CPU alone, and its tensors are on cuda:{device}",
            "move them: `.cpu()`",
        )


def memory_of(arguments: Mapping[str, Argument], memory: Memory) -> Memory:
    """The memory of the tensors among arguments."""
    for name, argument in arguments.items():
        for region in argument.regions:
            memory.add(region.address, region.size, name)
    return memory


def run_module(
    compiled: Compiled, code: MachineCode | None, arguments: Mapping[str, Argument], grid: tuple[int, int, int]
) -> None:
    """A module's kernel for every program of a grid, as machine code if there is some."""
    numbers = [number for argument in arguments.values() for number in argument.numbers]
    if code is not None:
        code.run(numbers, grid)
        return
    memory = memory_of(arguments, LiveMemory() if compiled.makes_pointers else Memory())
    run(compiled.module, compiled.name, numbers, memory, grid)


def run_text(source: Source, arguments: Mapping[str, Argument], grid: tuple[int, int, int], checks: Checks) -> None:
    """A kernel's text for every program of a grid."""
    function = function_of(source)
    values = {name: _value(argument) for name, argument in arguments.items()}
    named = {parameter.arg: values.pop(parameter.arg) for parameter in source.tree.args.kwonlyargs}
    context = Context(None, call=_call, direct=True, checks=checks)
    builder = context.builder = EagerBuilder(memory_of(arguments, _TextMemory(context)), grid)
    with entered(context):
        for z, y, x in itertools.product(*[range(size) for size in reversed(grid)]):
            builder.program.place = (x, y, z)
            try:
                result = function(*values.values(), **named)
                if unwrap(result) is not None:
                    raise InvalidUse("a kernel returns something, and gives its results through pointers alone")
            except Exception as error:  # whatever it was, it was the kernel's text that did it
                raise located(source, error, f", in program {(x, y, z)}") from error


class _TextMemory(LiveMemory):
    """Memory of a kernel whose text runs: only then it shows whether it makes pointers."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def _add_touched(self, addresses: Any) -> bool:
        return self.context.makes_pointers and super()._add_touched(addresses)


def _call(function: Any, args: Sequence[Any]) -> Any:
    return unwrap(function)(*args)


def _value(argument: Argument) -> Any:
    types = argument.type.handle_types()
    cells = [Cell.of(type, number) for type, number in zip(types, argument.numbers, strict=True)]
    return argument.type.assemble(iter(cells))
