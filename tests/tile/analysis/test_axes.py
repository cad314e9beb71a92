"""What is found of axes: rows of text, the function's last value, and what is to be known of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stator.tile.analysis.axes import LARGEST, Axes, analyse
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Module, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.parse import parse
from stator.tile.ir.types import I32, Pointer

_HEAD = "def main(m: i32, n: i32(divisibility=16), p: ptr[f32](divisibility=16)):\n"
_ROW = "    i: i32[64] = arange(start=0, end=64)\n"


def found(body: str) -> tuple[Module, Value, Axes]:
    """A module of a body, its last value, and what is known of that."""
    module = parse(_HEAD + _ROW + "".join([f"    {line}\n" for line in body.split("; ")]) + "    return_()\n")
    function = module.functions["main"]
    last = function.body.operations[-2].result
    return module, last, analyse(function, lambda op: OPERATORS[op].elementwise)[last]


#: A body → contiguity, divisibility and constancy of its last value.
CASES = {
    "a: i32[64] = arange(start=32, end=96)": ((64,), (32,), (1,)),
    "a: i32[64] = splat(n, shape=(64,))": ((1,), (16,), (64,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i32[64] = add(a, i)": ((64,), (16,), (1,)),
    "a: i32[64] = splat(m, shape=(64,)); b: i32[64] = add(a, i)": ((64,), (1,), (1,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i32[64] = rem(i, a)": ((16,), (16,), (1,)),
    "a: i32[64] = splat(m, shape=(64,)); b: i32[64] = rem(i, a)": ((1,), (1,), (1,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i1[64] = lt(i, a)": ((1,), (1,), (16,)),
    "a: i32[64] = splat(m, shape=(64,)); b: i1[64] = lt(i, a)": ((1,), (1,), (1,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i1[64] = le(i, a)": ((1,), (1,), (1,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i32[64] = mul(i, a)": ((1,), (16,), (1,)),
    "a: i32[64] = splat(n, shape=(64,)); b: i32[64] = idiv(i, a)": ((1,), (1,), (16,)),
    "a: i32[64] = splat(m, shape=(64,)); b: i32[64] = idiv(i, a)": ((1,), (1,), (1,)),
    "a: i32[64] = constant(value=3, type=i32[64]); b: i32[64] = shr(i, a)": ((1,), (1,), (8,)),
    "a: i32[64] = constant(value=3, type=i32[64]); b: i32[64] = shl(i, a)": ((1,), (8,), (1,)),
    # round towards zero: -64, -63, … in groups of 16 are not what 0, 1, … are
    "a: i32[64] = constant(value=-64, type=i32[64]); b: i32[64] = add(i, a); c: i32[64] = splat(n, shape=(64,)); "
    "d: i32[64] = rem(b, c)": ((1,), (1,), (1,)),
    "a: i32[64] = constant(value=-64, type=i32[64]); b: i32[64] = add(i, a); c: i32[64] = splat(n, shape=(64,)); "
    "d: i32[64] = idiv(b, c)": ((1,), (1,), (1,)),
    # as products have it whose programs go in groups: the last group may be smaller
    "a: i32 = program_id(axis=0); c: i32 = constant(value=8, type=i32); d: i32 = sub(m, a); e: i32 = minimum(d, c); "
    "f: i32 = rem(a, m); g: i32 = idiv(f, e); h: i32 = constant(value=64, type=i32); j: i32 = mul(g, h); "
    "k: i32[64] = splat(j, shape=(64,)); l: i32[64] = add(k, i); o: i32[64] = splat(n, shape=(64,)); "
    "q: i32[64] = rem(l, o)": ((16,), (16,), (1,)),
    "a: i32[64, 1] = expand_dims(i, axis=1); b: i32[64, 8] = broadcast(a, shape=(64, 8))": (
        (64, 1), (LARGEST, 1), (1, 8),
    ),
    "a: i32[8, 8] = reshape(i, shape=(8, 8))": ((1, 8), (1, 8), (1, 1)),
    "a: ptr[f32][64] = splat(p, shape=(64,)); b: ptr[f32][64] = addptr(a, i)": ((64,), (16,), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("body", CASES)
def test_what_is_known(body: str) -> None:
    axes = found(body)[2]
    assert (axes.contiguity, axes.divisibility, axes.constancy) == CASES[body]


@pytest.mark.parametrize("body", [body for body in CASES if "ptr" not in body])
@pytest.mark.parametrize("numbers", [(3, 16), (16, 48), (1, 96)], ids=str)
def test_what_is_known_holds(body: str, numbers: tuple[int, int]) -> None:
    module, value, axes = found(body)
    function = module.functions["main"]
    function.body.operations.pop()
    builder = IRBuilder(function)
    (wide,) = builder.emit("cast", [value], {"dtype": I32})
    size = value.type.numel
    (flat,) = builder.emit("reshape", [wide], {"shape": (size,)})
    (row,) = builder.emit("arange", [], {"start": 0, "end": size})
    (base,) = builder.emit("bitcast", [function.params[2]], {"dtype": Pointer(wide.type.element)})
    (spread,) = builder.emit("splat", [base], {"shape": (size,)})
    builder.emit("store", [builder.emit("addptr", [spread, row])[0], flat])
    builder.emit("return")
    out, memory = np.zeros(size, np.int32), Memory()
    run(module, "main", [*numbers, memory.add_array(out, "out")], memory)
    check(out.reshape(value.type.shape), axes)


def check(data: np.ndarray[tuple[int, ...], np.dtype[np.int32]], axes: Axes) -> None:
    """Every promise of an analysis, on the elements themselves."""
    for axis, size in enumerate(data.shape):
        rows = np.moveaxis(data, axis, -1).reshape(-1, size)
        for row, start in itertools.product(rows, range(0, size, axes.contiguity[axis])):
            run_ = row[start : start + axes.contiguity[axis]]
            assert (run_ == run_[0] + np.arange(len(run_))).all()
            assert run_[0] == 0 or run_[0] % axes.divisibility[axis] == 0
        for row, start in itertools.product(rows, range(0, size, axes.constancy[axis])):
            assert len(set(row[start : start + axes.constancy[axis]])) == 1


def test_what_a_loop_carries_is_what_holds_in_every_turn() -> None:
    body = (
        "z: i32 = constant(value=0, type=i32); k: i32 = constant(value=64, type=i32); "
        "s: i32 = for_(z, n, k, z)\n    def body(j: i32, c: i32):\n        d: i32 = add(c, k)\n        yield_(d)"
    )
    axes = found(body + "\n    a: i32[64] = splat(s, shape=(64,)); b: i32[64] = add(a, i)")[2]
    assert axes.divisibility == (64,) and axes.contiguity == (64,)
