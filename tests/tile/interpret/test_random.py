"""Random programs: tile IR, that IR through its text, and the eager builder leave the same memory behind."""

from __future__ import annotations

import pytest

from tests.tile.interpret.compare import Arguments, by_ir, compare
from tests.tile.ir.programs import random_module


@pytest.mark.parametrize("seed", range(100))
def test_all_ways_agree(seed: int) -> None:
    compare(seed)


def test_programs_do_something() -> None:
    before = Arguments().bytes
    changed = [by_ir(random_module(seed)[0]) for seed in range(20)]
    assert before not in changed and len(set(changed)) == len(changed)


def test_programs_use_most_operators() -> None:
    used = {operation.op for seed in range(100) for operation in random_module(seed)[1].body.walk()}
    shapes = {"splat", "broadcast", "permute", "reshape", "expand_dims", "join", "split", "cat", "gather"}
    memory = {"addptr", "load", "store", "atomic_rmw", "atomic_cas"}
    assert used >= shapes | memory | {
        "if",
        "for",
        "while",
        "reduce",
        "scan",
        "sort",
        "histogram",
        "dot",
        "select",
        "cast",
    }
