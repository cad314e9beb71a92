"""Strategies for vectors: their functions are well formed, and do what kernels say."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from stator.base import pairs
from stator.base.dtypes import ITEMSIZE
from stator.kernel.decisions import decide
from stator.kernel.evaluate import run
from stator.kernel.ir import Function, Let, Loop, Multiply, Position, Scratch, walk
from stator.kernel.strategies import serial, vectors
from stator.kernel.text import function_text
from stator.loop.evaluate import Memory
from stator.loop.expr import cast, const, index, load, op, reduce
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.targets import typical
from tests.kernel.programs import checked, compare

LANES = (64, 16)


@pytest.mark.parametrize("vector_bytes", LANES)
@pytest.mark.parametrize("seed", [*range(200, 260), 5593])
def test_random_kernels(seed: int, vector_bytes: int) -> None:
    def strategy(kernel: Kernel, name: str) -> Function:
        device = replace(typical("cpu"), vector_bytes=vector_bytes, stream_bytes=seed % 2)
        return vectors(decide(kernel, device), name)

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
    text = function_text(checked(vectors(decide(made, replace(typical("cpu"), threads=2, cache_bytes=1 << 30)), "k")))
    whole, rest = (f"in {kind}(16*8, 128*x0_piece, " for kind in ("whole", "rest"))
    for part in ("-> Threads[2]", "in parallel(40)", whole, "flush(a0_7)", rest, "flush(a0_rest)"):
        assert part in text, text


def paired(rows: int, columns: int, terms: int) -> Kernel:
    """A product of bfloat16 by a factor in pairs of terms, and the greatest of zero and each sum."""
    x, y, r = Axis("x0", rows), Axis("x1", columns), Axis("r0", terms)
    left = load("p0", x.index * terms + r, "bf16")
    right = load("p1", pairs.place(y.index, r.index, terms), "bf16")
    total = reduce("sum", op("mul", cast(left, "f32"), cast(right, "f32")))
    value = cast(op("maximum", const(0.0, "f32"), total), "bf16")
    params = (
        Param("p0", "bf16", "in", rows * terms),
        Param("p1", "bf16", "in", prod(pairs.shape(columns, terms))),
        Param("p2", "bf16", "out", rows * columns),
    )
    return kernel((x, y), (r,), (Store("p2", x.index * columns + y, value, "outer"),), params)


def filled(param: Param) -> Memory:
    """Numbers whose products and sums are exact."""
    assert isinstance(param.numel, int)
    memory = Memory(bytearray(ITEMSIZE[param.dtype] * param.numel), 0, param.dtype)
    for i in range(param.numel):
        memory.write(i, (7 * i % 11 - 5) / 4)
    return memory


@pytest.mark.parametrize("size", [(40, 20, 34), (2, 50, 3), (33, 2, 5)])
def test_blocks_of_products_of_pairs(size: tuple[int, int, int]) -> None:
    made = paired(*size)
    device = replace(typical("cpu"), multiplies_pairs=True)
    plan = decide(made, device)
    function = checked(vectors(plan, "k"))
    assert [type(s) for s in walk(function.body)].count(Multiply) == 1
    assert f"{'columns' if size == (2, 50, 3) else 'rows'} first" in plan.reason(device)
    results = []
    for one in (function, checked(serial(made, "k"))):
        memories = {p.name: filled(p) for p in made.params}
        assert run(one, memories) == 0
        results.append(bytes(memories["p2"].data))
    assert results[0] == results[1]


def test_factors_that_do_not_lie_in_pairs_are_loops() -> None:
    device = replace(typical("cpu"), multiplies_pairs=True)
    function = vectors(decide(paired(8, 8, 1), device), "k")
    assert not any(isinstance(s, Multiply) for s in walk(function.body))


def scaled(rows: int, role: str = "in") -> Kernel:
    """Pixels of 40 channels, times a number of each channel that is costly."""
    x, c = Axis("x0", rows), Axis("x1", 40)
    scale = op("rsqrt", op("add", load("p1", c.index, "f32"), const(1.0, "f32")))
    stores = (Store("p2", x.index * 40 + c, op("mul", load("p0", x.index * 40 + c, "f32"), scale), "outer"),)
    given = Param("p0", "f32", "in", 40 * rows), Param("p1", "f32", role, 40)
    return kernel((x, c), (), stores, (*given, Param("p2", "f32", "out", 40 * rows)))


def test_what_rows_share_is_computed_ahead() -> None:
    plan = decide(scaled(100), typical("cpu"))
    function = checked(vectors(plan, "k"))
    scratch, ahead, rows = function.body
    assert isinstance(scratch, Scratch) and isinstance(ahead, Loop) and isinstance(rows, Loop)
    found = [[s.op for s in walk(loop.body) if isinstance(s, Let)] for loop in (ahead, rows)]
    assert found == [["add", "rsqrt"], ["mul"]] and "1 values of all rows ahead" in plan.reason(typical("cpu"))
    given = {"p0": [float(i % 7) for i in range(4000)], "p1": [float(i) for i in range(40)], "p2": [0.0] * 4000}
    memories = {name: Memory(bytearray(4 * len(values)), 0, "f32") for name, values in given.items()}
    for name, values in given.items():
        for i, value in enumerate(values):
            memories[name].write(i, value)
    assert run(function, memories) == 0
    assert all(abs(memories["p2"].read(i) - i % 7 / (i % 40 + 1) ** 0.5) < 1e-5 for i in range(4000))


@pytest.mark.parametrize(("rows", "role"), [(2, "in"), (100, "inout")])
def test_few_rows_and_what_is_written_are_not(rows: int, role: str) -> None:
    assert decide(scaled(rows, role), typical("cpu")).ahead == ()


def test_results_that_caches_cannot_hold_are_stored_past_them() -> None:
    """By their bytes for each core; what is read again, or added to, is in a cache already."""
    device = replace(typical("cpu"), cores=2)
    rows = device.stream_bytes * 2 // (4 * 40)
    many, few = (decide(scaled(count), device) for count in (rows + 1, rows - 1))
    assert many.streamed == {"p2"} and "stores past the caches to p2" in many.reason(device)
    assert not few.streamed and "past the caches" not in few.reason(device)
    assert function_text(checked(vectors(many, "k"))).count("stream(p2[") == 1
    assert not decide(scaled(rows + 1), replace(device, stream_bytes=0)).streamed
    x = Axis("x0", 40 * rows + 40)
    for role, mode in (("inout", "store"), ("inout", "add")):
        stores = (Store("p1", x.index, load("p0", x.index, "f32"), "outer", mode),)
        made = kernel((x,), (), stores, (Param("p0", "f32", "in", x.size), Param("p1", "f32", role, x.size)))
        assert not decide(made, device).streamed
