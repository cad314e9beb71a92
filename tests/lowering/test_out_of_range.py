"""Indices out of range raise what eager raises, and nothing is read or written outside of the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.base.options import Options
from stator.codegen import cpp
from stator.loop import evaluate
from stator.loop import expr as e
from stator.loop.index import Axis
from stator.loop.kernel import Schedule
from stator.loop.nest import Buffer, Nest, Program, View
from stator.loop.schedule import schedule
from stator.plan.build import make
from stator.runtime import Unit, build, link
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read

ROWS, COLUMNS = 5, 40

#: name → program of a table [ROWS, COLUMNS] and three positions of its rows
LOOKUPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda w, i: F.embedding(i, w) * 2,
    "index": lambda w, i: w[i] * 2,
    "index_columns": lambda w, i: w.t()[:, i] * 2,
    "index_select": lambda w, i: torch.index_select(w, 0, i) * 2,
    "gather": lambda w, i: torch.gather(w, 0, i.repeat(2, 14)[:, :COLUMNS]) * 2,
    "summed": lambda w, i: w[i].sum(-1),
    "joined": lambda w, i: torch.cat([w[i], w[:2]]) * 2,
    "cross_entropy": lambda w, i: F.cross_entropy(w.t()[:3], i),
    "one_hot": lambda w, i: F.one_hot(i, ROWS) * 2.0,
    "index_put": lambda w, i: torch.index_put(w, (i,), w[:3]) * 2,
    "index_add": lambda w, i: torch.index_add(w, 0, i, w[:3]) * 2,
    "index_copy": lambda w, i: torch.index_copy(w, 0, i, w[:3]) * 2,
    "index_fill": lambda w, i: torch.index_fill(w, 0, i, 2.0) * 2,
    "put_added": lambda w, i: torch.index_put(w, (i,), w[:3], accumulate=True) * 2,
    "put_one": lambda w, i: w[:, :1].contiguous().put(i, w[:3, 0], accumulate=True) * 2,
    "scatter_max": lambda w, i: torch.scatter_reduce(w, 0, i[:, None].expand(-1, COLUMNS), w[:3], "amax") * 2,
    "scatter": lambda w, i: torch.scatter(w, 0, i[:, None].expand(-1, COLUMNS), w[:3]) * 2,
    "scatter_add": lambda w, i: torch.scatter_add(w, 0, i[:, None].expand(-1, COLUMNS), w[:3]) * 2,
}


def outcome(program: Callable[[Tensor, Tensor], Tensor], *inputs: Tensor) -> Any:
    try:
        return program(*inputs)
    except (IndexError, RuntimeError) as error:
        return error


@pytest.mark.parametrize("name", LOOKUPS)
def test_errors_are_those_of_eager(name: str) -> None:
    program = LOOKUPS[name]
    compiled = stator.compile(program, fullgraph=True, options={"strict": True})
    # The table lies between guards, so that a write beside it would show.
    memory = torch.randn(ROWS + 4, COLUMNS)
    table = memory[2:-2]
    before = memory.clone()
    refused = 0
    for second in (3, ROWS, ROWS + 1, 10**6, 2**40, -1, -ROWS - 1, -(10**6)):
        positions = torch.tensor([0, second, 1])
        ours, eager = outcome(compiled, table, positions), outcome(program, table, positions)
        if isinstance(eager, Exception):
            refused += 1
            assert isinstance(ours, type(eager)), (second, ours)
        else:
            torch.testing.assert_close(ours, eager)
        assert torch.equal(memory, before)
    assert refused >= 6


def lookup(columns: int, mode: str) -> Schedule:
    """A lookup with the positions of each element ("read"), or adding at such positions ("add")."""
    axes = i, j = Axis("i", 3), Axis("j", columns)
    flat = i.index * columns + j
    at = e.to_index(e.load("at", flat, "i64"), 6)
    table, places = Buffer("table", "f32", (6,), (1,)), Buffer("at", "i64", (3, columns), (columns, 1))
    out = Buffer("out", "f32", (3, columns), (columns, 1))
    if mode == "read":
        nest = Nest(out, axes, (), e.load("table", at, "f32"), flat)
        inputs, mutated, outputs = (table, places), (), (View("out", out.size, out.stride),)
    else:
        nest = Nest(table, axes, (), e.const(1.0, "f32"), at, "add")
        inputs, mutated, outputs = (table, places), ("table",), ()
    return schedule(Program("lookup", "cpu", inputs, (nest,), outputs, mutated), typical("cpu", 2))


def linked(plan: Schedule) -> Callable[[list[Tensor]], tuple[Any, ...]]:
    target = read()
    unit = Unit(cpp.emit(plan.kernels, target, plan.names), plan.names, flags(target))
    options = Options.from_user()
    return link(build(make(plan), [unit], options), options)


@pytest.mark.parametrize("columns", [1, 7, 37])
@pytest.mark.parametrize("mode", ["read", "add"])
def test_positions_in_a_vector(columns: int, mode: str) -> None:
    """Whichever lane it is in, also in the last, partial block."""
    plan = lookup(columns, mode)
    call = linked(plan)
    for where in {0, columns - 1, 3 * columns - 1, columns}:
        for wrong in (6, -1, 2**33):
            memory = torch.randn(10)
            table, positions = memory[2:8], torch.randint(6, (3, columns))
            edges = memory[[0, 1, 8, 9]].clone()
            call([table, positions])
            positions.view(-1)[min(where, 3 * columns - 1)] = wrong
            with pytest.raises(IndexError, match="out of range for a dim of size 6"):
                call([table, positions])
            assert torch.equal(memory[[0, 1, 8, 9]], edges)
            given = {"table": table.tolist(), "at": positions.flatten().tolist()}
            with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
                evaluate.run_schedule(plan, given)


def test_only_what_a_mask_lets_through_counts() -> None:
    i = Axis("i", 50)
    table, places = Buffer("table", "f32", (6,), (1,)), Buffer("at", "i64", (20,), (1,))
    out = Buffer("out", "f32", (50,), (1,))
    inside = e.op("lt", e.index(i), e.const(20, "i64"))
    read = e.load("table", e.to_index(e.load("at", i.index, "i64"), 6), "f32")
    nest = Nest(out, (i,), (), e.masked(inside, read, e.const(-1.0, "f32")), i.index)
    program = Program("masked", "cpu", (table, places), (nest,), (View("out", (50,), (1,)),))
    call = linked(schedule(program, typical("cpu", 2)))
    memory, values = torch.full((80,), 99), torch.randn(6)  # beside the positions lie numbers that would be wrong
    positions = memory[:20].copy_(torch.randint(6, (20,)))
    expected = torch.cat([values[positions], torch.full((30,), -1.0)])
    assert torch.equal(call([values, positions])[0], expected)
    positions[19] = 6
    with pytest.raises(IndexError):
        call([values, positions])


def test_a_provable_index_is_not_checked() -> None:
    i = Axis("i", 50)
    table, small = Buffer("table", "f32", (256,), (1,)), Buffer("at", "u8", (50,), (1,))
    out = Buffer("out", "f32", (50,), (1,))
    read = e.load("table", e.to_index(e.cast(e.load("at", i.index, "u8"), "i64"), 256), "f32")
    nest = Nest(out, (i,), (), read, i.index)
    program = Program("bytes", "cpu", (table, small), (nest,), (View("out", (50,), (1,)),))
    plan = schedule(program, typical("cpu", 2))
    assert "wrong" not in cpp.emit(plan.kernels, typical("cpu")).partition("k0_range")[2]
    values, positions = torch.randn(256), torch.randint(256, (50,), dtype=torch.uint8)
    assert torch.equal(linked(plan)([values, positions])[0], values[positions.long()])
