"""The cases of the conformance suite: they reach every operator that computes, and tile IR and cells agree on them."""

from __future__ import annotations

import pytest

from stator.tile.interpret.eager import Cell, EagerBuilder
from stator.tile.ir.operators import OPERATORS
from tests.tile.conformance import cases
from tests.tile.interpret.cases import Case

CASES = cases()
#: One case in so many is run here; `python -m tests.tile --cases` runs them all.
STEP = 9


def test_every_operator_that_computes_has_cases() -> None:
    control = {name for name, row in OPERATORS.items() if row.is_terminator} | {"if", "for", "while", "call"}
    memory = {"load", "store", "atomic_rmw", "atomic_cas", "addptr", "int_to_ptr", "ptr_to_int"}
    program = {"program_id", "num_programs", "print", "assert", "assume", "barrier", "inline_asm"}
    assert OPERATORS.keys() - {case.op for case in CASES} == control | memory | program
    assert len(CASES) > 2500 and len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES[::STEP], ids=str)
def test_tile_ir_and_cells_agree(case: Case) -> None:
    agree(case)


def agree(case: Case) -> None:
    """Through memory and a module's operations, and on cells, an operator gives the same bits."""
    builder = EagerBuilder()
    cells = [Cell(type_, data) for type_, (_, data) in zip(case.types, case.operands, strict=True)]
    results = case.emit(builder, cells)
    found = case.run()
    assert len(found) == len(results) > 0
    for array, cell in zip(found, results, strict=True):
        assert array.dtype == cell.data.dtype and array.shape == cell.data.shape
        assert array.tobytes() == cell.data.tobytes()
