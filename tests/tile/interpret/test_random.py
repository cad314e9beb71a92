"""Random programs: tile IR, that IR through its text, and the eager builder leave the same memory behind."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile.interpret.eager import Cell, EagerBuilder
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.core import Module
from stator.tile.ir.parse import parse
from stator.tile.ir.text import module_text
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
    arguments = Arguments()
    run(module, "main", arguments.numbers, arguments.memory)
    return arguments.bytes


def directly(seed: int) -> bytes:
    arguments = Arguments()
    builder = EagerBuilder(arguments.memory)
    cells = [Cell.of(type_, number) for type_, number in zip(PARAMS.values(), arguments.numbers, strict=True)]
    write(seed, Direct(builder), cells)
    return arguments.bytes


@pytest.mark.parametrize("seed", range(150))
def test_both_ways_agree(seed: int) -> None:
    module, _ = random_module(seed)
    found = by_ir(module)
    assert found == by_ir(parse(module_text(module)))
    assert found == directly(seed)


def test_programs_do_something() -> None:
    before = Arguments().bytes
    changed = [by_ir(random_module(seed)[0]) for seed in range(20)]
    assert before not in changed and len(set(changed)) == len(changed)


def test_programs_use_most_operators() -> None:
    used = {operation.op for seed in range(150) for operation in random_module(seed)[1].body.walk()}
    assert {"if", "for", "reduce", "scan", "sort", "load", "store", "cast", "select", "broadcast", "permute"} <= used
