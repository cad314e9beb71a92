"""The eager builder: cells, regions of Python, what it refuses, and what it says when something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stator.tile.interpret.access import ACCESS
from stator.tile.interpret.compute import COMPUTE, Fault
from stator.tile.interpret.eager import Batched, Cell, EagerBuilder
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.products import PRODUCTS
from stator.tile.interpret.program import OTHERS
from stator.tile.interpret.tiles import TILES
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import DTYPES, F32, I32, Pointer, Type


def row(numbers: Sequence[int]) -> Cell:
    return Cell(Type(I32, (len(numbers),)), np.array(numbers, np.int32))


def test_values_are_there_at_once() -> None:
    builder = EagerBuilder()
    (a,) = builder.emit("arange", [], {"start": 0, "end": 4})
    (b,) = builder.emit("mul", [a, a])
    assert b.data.tolist() == [0, 1, 4, 9] and b.type == Type(I32, (4,)) and str(b) == "[0 1 4 9]"


@pytest.mark.parametrize(
    ("name", "number"),
    [("i1", True), ("i64", -5), ("f32", 0.5), ("bf16", 0.5), ("f8e5", -2.0), ("f16", float("inf"))],
)
def test_a_scalar_is_a_number_of_pythons(name: str, number: Any) -> None:
    found = Cell.of(Type(DTYPES[name]), number).item()
    assert found == number and type(found) is type(number)


def test_a_tile_is_no_number() -> None:
    with pytest.raises(Batched, match=r"a i32\[2\] is not one number"):
        row([1, 2]).item()


def test_programs_know_their_place() -> None:
    builder = EagerBuilder(grid=(4, 5, 6))
    builder.program.place = (1, 2, 3)
    ids = [builder.emit("program_id", [], {"axis": axis})[0].item() for axis in range(3)]
    sizes = [builder.emit("num_programs", [], {"axis": axis})[0].item() for axis in range(3)]
    assert (ids, sizes) == ([1, 2, 3], [4, 5, 6])


def combined(op: str, values: Cell, body: Any) -> tuple[Cell, int]:
    """A reduction or scan, and how often its body was called."""
    builder, calls = EagerBuilder(), 0

    def counted(*args: Cell) -> list[Cell]:
        nonlocal calls
        calls += 1
        return [body(builder, *args)]

    region = builder.region([values.type.scalar] * 2, counted)
    return builder.emit(op, [values], {"axis": 0}, [region])[0], calls


def test_a_body_runs_for_all_places_at_once() -> None:
    found, calls = combined("reduce", row(range(64)), lambda b, x, y: b.emit("add", [x, y])[0])
    assert found.item() == 2016 and calls == 6


def test_a_body_that_decides_runs_for_each_place() -> None:
    def greater(builder: EagerBuilder, x: Cell, y: Cell) -> Cell:
        return x if builder.emit("gt", [x, y])[0].item() else y

    found, calls = combined("reduce", row([3, 8, 5, 1]), greater)
    assert found.item() == 8 and calls == 1 + 2 + 1
    running, _ = combined("scan", row([3, 8, 5, 9]), greater)
    assert running.data.tolist() == [3, 8, 8, 9]


def test_a_body_that_makes_tiles_runs_for_each_place() -> None:
    def by_tile(builder: EagerBuilder, x: Cell, y: Cell) -> Cell:
        (pair,) = builder.emit("join", [x, y])
        first, second = builder.emit("split", [pair])
        return builder.emit("add", [first, second])[0]

    found, _ = combined("reduce", row(range(8)), by_tile)
    assert found.item() == 28


def test_a_body_gives_what_it_takes() -> None:
    with pytest.raises(TypeRule, match=r"what combines gives \(f32\), not \(i32\)"):
        combined("reduce", row([1, 2]), lambda b, x, y: b.emit("cast", [x], {"dtype": F32})[0])


def test_constants_of_a_body_are_everywhere() -> None:
    found, _ = combined("scan", row([1, 2, 3]), lambda b, x, y: Cell.of(Type(I32), 7))
    assert found.data.tolist() == [1, 7, 7]


@pytest.mark.parametrize("op", ["if", "for", "while", "call", "yield", "condition", "return"])
def test_control_flow_is_pythons(op: str) -> None:
    with pytest.raises(TypeRule, match=f"{op}: a kernel whose text runs uses Python's control flow"):
        EagerBuilder().emit(op)


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "message"),
    [
        ("add", [row([1]), row([1, 2])], {}, r"add: takes operands of one type, not \(i32\[1\], i32\[2\]\)"),
        ("nothing", [], {}, "there is no operator nothing"),
        ("reduce", [row([1])], {"axis": 0}, "reduce: has 1 regions, not 0"),
        ("arange", [], {"start": 0}, "arange: needs the attribute 'end'"),
    ],
)
def test_rules_are_those_of_the_ir(op: str, operands: list[Cell], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeRule, match=message):
        EagerBuilder().emit(op, operands, attrs)


def test_faults_are_raised_as_such() -> None:
    data = np.arange(4, dtype=np.int32)
    memory = Memory()
    builder = EagerBuilder(memory)
    pointer = Cell.of(Type(Pointer(I32)), memory.add_array(data, "data"))
    assert builder.emit("load", [pointer])[0].item() == 0
    (behind,) = builder.emit("addptr", [pointer, Cell.of(Type(I32), 4)])
    with pytest.raises(Fault, match="0 bytes behind data, which has 16"):
        builder.emit("load", [behind])


def test_every_operator_has_one_meaning() -> None:
    """A row in one of the interpreter's tables, unless it is control flow."""
    rows = [*COMPUTE, *TILES, *PRODUCTS, *ACCESS, *OTHERS]
    assert len(rows) == len(set(rows))
    control = {name for name, row in OPERATORS.items() if row.is_terminator} | {"if", "for", "while", "call"}
    assert set(rows) == OPERATORS.keys() - control
