"""Strategies for vectors: their functions are well formed, and do what kernels say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stator.kernel.decisions import decide
from stator.kernel.ir import Function, Let, Loop, Position, walk
from stator.kernel.strategies import vectors
from stator.kernel.text import function_text
from stator.loop.expr import const, index, load, op, reduce
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.targets import typical
from tests.kernel.programs import checked, compare

LANES = (64, 16)


@pytest.mark.parametrize("vector_bytes", LANES)
@pytest.mark.parametrize("seed", [*range(200, 260), 5593])
def test_random_kernels(seed: int, vector_bytes: int) -> None:
    def strategy(kernel: Kernel, name: str) -> Function:
        return vectors(decide(kernel, replace(typical("cpu"), vector_bytes=vector_bytes)), name)

    assert compare(seed, strategy) > 0


def test_lanes_are_compared_with_one_wide_number_as_narrow_ones() -> None:
    """The classes of a cross entropy with the target of a row: 64 bits for each lane would take twice as long."""
    x, y = Axis("x0", 4), Axis("x1", 640)
    same = op("eq", index(y), load("p0", x.index, "i64"))
    stores = (Store("p1", x.index * 640 + y, op("where", same, const(1.0, "f32"), const(0.0, "f32")), "outer"),)
    made = kernel((x, y), (), stores, (Param("p0", "i64", "in", 4), Param("p1", "f32", "out", 2560)))
    function = checked(vectors(decide(made, typical("cpu")), "k"))
    (lanes,) = [s for s in walk(function.body) if isinstance(s, Loop) and s.kind == "lanes"]
    assert lanes.lanes == 16
    assert {s.target.dtype for s in lanes.body if isinstance(s, Let | Position)} == {"i32", "bool", "f32"}


def test_every_decision_shows_in_the_text() -> None:
    """A column, several vectors of it together, whose long sums are flushed; threads share pieces of it."""
    x, r = Axis("x0", 5000), Axis("r0", 3000)
    stores = (Store("p1", x.index, reduce("sum", load("p0", r.index * 5000 + x, "f32")), "outer"),)
    made = kernel((x,), (r,), stores, (Param("p0", "f32", "in", 15_000_000), Param("p1", "f32", "out", 5000)))
    text = function_text(checked(vectors(decide(made, replace(typical("cpu"), threads=2)), "k")))
    whole, rest = (f"in {kind}(16*4, 64*x0_piece, " for kind in ("whole", "rest"))
    for part in ("-> Threads[2]", "in parallel(79)", whole, "flush(a0_3)", rest, "flush(a0_rest)"):
        assert part in text, text
