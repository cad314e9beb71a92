"""Runs a random program in every way there is, and compares the memory that each leaves behind."""

from __future__ import annotations

import numpy as np

from stator.tile.interpret.eager import Cell, EagerBuilder
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.core import Module
from stator.tile.ir.parse import parse
from stator.tile.ir.text import module_text
from stator.tile.ir.verify import verify
from tests.tile.ir.programs import PARAMS, SIZE, Direct, random_module, write

_N = 7


class Arguments:
    """The memories of a program, filled in the same way each time."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=SIZE).astype(np.float32)
        self.y = generator.integers(-100, 100, SIZE).astype(np.int32)
        self.memory = Memory()
        self.numbers = [self.memory.add_array(self.x, "x"), self.memory.add_array(self.y, "y"), _N]

    @property
    def bytes(self) -> bytes:
        return self.x.tobytes() + self.y.tobytes()


def by_ir(module: Module) -> bytes:
    """What the interpreter of tile IR leaves behind."""
    arguments = Arguments()
    run(module, "main", arguments.numbers, arguments.memory)
    return arguments.bytes


def directly(seed: int) -> bytes:
    """What the eager builder leaves behind."""
    arguments = Arguments()
    builder = EagerBuilder(arguments.memory)
    cells = [Cell.of(type_, number) for type_, number in zip(PARAMS.values(), arguments.numbers, strict=True)]
    write(seed, Direct(builder), cells)
    return arguments.bytes


def compare(seed: int) -> bytes:
    """The memory behind a program, which is the same in every way of running it."""
    module, _ = random_module(seed)
    verify(module)
    text = module_text(module)
    again = parse(text)
    verify(again)
    assert module_text(again) == text, f"program {seed}: the text is another when read again"
    found = by_ir(module)
    assert found == by_ir(again), f"program {seed}: the text does something else"
    assert found == directly(seed), f"program {seed}: the eager builder does something else"
    return found
