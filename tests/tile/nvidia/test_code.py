"""What the code for a GPU does not do twice: loads, roundings, and sums over warps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stator.tile.ir.parse import parse
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine

ROWS = """
def main(p: ptr[f32], out: ptr[f32](divisibility=16), n: i32(divisibility=16)):
    i: i32[1024] = arange(start=0, end=1024)
    m: i32[1024] = splat({divisor}, shape=(1024,))
    row: i32[1024] = idiv(i, m)
    q: ptr[f32][1024] = splat(p, shape=(1024,))
    r: ptr[f32][1024] = addptr(q, row)
    x: f32[1024] = load(r)
    o: ptr[f32][1024] = splat(out, shape=(1024,))
    s: ptr[f32][1024] = addptr(o, i)
    store(s, x)
    return_()
"""


@pytest.mark.parametrize(("divisor", "loads"), [("n", 2), ("k", 8)])
def test_what_neighbours_share_is_loaded_once(divisor: str, loads: int) -> None:
    """Of 8 elements of a thread, two fours; where the number of columns is known to be a multiple of 16."""
    module = parse(ROWS.format(divisor=divisor).replace("n: i32(divisibility=16)", "n: i32(divisibility=16), k: i32"))
    text = text_of(module, "main")
    assert text.llvm.count("ld.global") == loads
    x, out = np.arange(64, dtype=np.float32), np.zeros(1024, np.float32)
    places = [array.__array_interface__["data"][0] for array in (x, out)]
    Machine(text, [x, out]).run([*places, 32, 32])
    np.testing.assert_array_equal(out, x[np.arange(1024) // 32])


COLUMNS = """
def main(p: ptr[f32], out: ptr[f32]):
    i: i32[128] = arange(start=0, end=128)
    a: i32[128, 1] = expand_dims(i, axis=1)
    b: i32[128, 64] = broadcast(a, shape=(128, 64))
    c: i32[128, 64] = constant(value=64, type=i32[128, 64])
    d: i32[128, 64] = mul(b, c)
    j: i32[64] = arange(start=0, end=64)
    k: i32[1, 64] = expand_dims(j, axis=0)
    l: i32[128, 64] = broadcast(k, shape=(128, 64))
    m: i32[128, 64] = add(d, l)
    q: ptr[f32][128, 64] = splat(p, shape=(128, 64))
    r: ptr[f32][128, 64] = addptr(q, m)
    x: f32[128, 64] = load(r)
    y: f32[64] = reduce(x, axis=0)
    def combine(left: f32, right: f32):
        {combine}
    o: ptr[f32][64] = splat(out, shape=(64,))
    s: ptr[f32][64] = addptr(o, j)
    store(s, y)
    return_()
"""


@pytest.mark.parametrize("warps", [1, 4, 8, 16])
@pytest.mark.parametrize("what", ["sum", "first", "last"])
def test_columns_over_many_warps(warps: int, what: str) -> None:
    """What is combined in order, too: the first, or the last element of each column."""
    combine = {"sum": "z: f32 = add(left, right)\n        yield_(z)", "first": "yield_(left)", "last": "yield_(right)"}
    module = parse(COLUMNS.format(combine=combine[what]))
    module.functions["main"].attrs["num_warps"] = warps
    found = text_of(module, "main")
    x, out = np.zeros((128, 64), np.float32), np.zeros(64, np.float32)
    x[:] = np.random.default_rng(0).integers(-8, 8, x.shape)
    Machine(found, [x, out]).run([array.__array_interface__["data"][0] for array in (x, out)])
    np.testing.assert_array_equal(out, {"sum": x.sum(0), "first": x[0], "last": x[-1]}[what])


PAIRS = """
def main(p: ptr[f32](divisibility=16), out: ptr[bf16](divisibility=16)):
    i: i32[1024] = arange(start=0, end=1024)
    q: ptr[f32][1024] = splat(p, shape=(1024,))
    r: ptr[f32][1024] = addptr(q, i)
    x: f32[1024] = load(r)
    y: bf16[1024] = cast(x, dtype=bf16)
    o: ptr[bf16][1024] = splat(out, shape=(1024,))
    s: ptr[bf16][1024] = addptr(o, i)
    store(s, y)
    return_()
"""


def test_numbers_are_rounded_two_at_a_time() -> None:
    text = text_of(parse(PAIRS), "main")
    assert text.llvm.count("cvt.rn.bf16x2.f32") == 4  # of eight that a thread has
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    x[:4] = np.inf, -np.inf, 3.3e38, 1e-40
    out = np.zeros(1024, np.uint16)
    Machine(text, [x, out]).run([array.__array_interface__["data"][0] for array in (x, out)])
    wanted = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(out, wanted)
