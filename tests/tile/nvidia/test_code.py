"""What the code for a GPU does not do twice: loads, roundings, and sums over warps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.parse import parse
from stator.tile.nvidia import halves
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


ARITHMETIC = """
def main(p: ptr[bf16](divisibility=16), q: ptr[bf16](divisibility=16), out: ptr[bf16](divisibility=16)):
    i: i32[256] = arange(start=0, end=256)
    a: ptr[bf16][256] = splat(p, shape=(256,))
    b: ptr[bf16][256] = addptr(a, i)
    c: ptr[bf16][256] = splat(q, shape=(256,))
    d: ptr[bf16][256] = addptr(c, i)
    u: bf16[256] = load(b)
    v: bf16[256] = load(d)
    x: f32[256] = cast(u, dtype=f32)
    y: f32[256] = cast(v, dtype=f32)
    {lines}
    w: bf16[256] = cast(z, dtype=bf16)
    o: ptr[bf16][256] = splat(out, shape=(256,))
    s: ptr[bf16][256] = addptr(o, i)
    store(s, w)
    return_()
"""
_HALF, _TENTH = (f"k: f32[256] = constant(value={value}, type=f32[256]); " for value in (0.5, 0.1))


@pytest.mark.parametrize(
    ("lines", "rounds", "computes"),
    [
        ("z: f32[256] = add(x, y)", 1, True),
        ("z: f32[256] = sub(x, y)", 1, True),
        (_HALF + "z: f32[256] = mul(x, k)", 1, True),
        (_TENTH + "z: f32[256] = mul(x, k)", 1, False),
        ("m: i1[256] = lt(x, y); z: f32[256] = select(m, y, x)", 0, False),
        ("t: f32[256] = add(x, y); z: f32[256] = add(t, x)", 1, False),
        ("t: f32[256] = mul(x, y); m: i1[256] = lt(t, x); z: f32[256] = select(m, t, x)", 1, False),
    ],
)
@pytest.mark.parametrize("architecture", [80, 90])
def test_what_bfloats_have_is_not_rounded(lines: str, rounds: int, computes: bool, architecture: int) -> None:
    """Two elements of a thread: one rounding of both or none, or arithmetic in bf16 where there is any."""
    module = parse(ARITHMETIC.format(lines="\n    ".join(lines.split("; "))))
    text = text_of(module, "main", architecture)
    instead = computes and architecture >= halves.SINCE
    assert text.llvm.count("cvt.rn.bf16x2.f32") == rounds - instead
    assert sum([text.llvm.count(f"{op}.rn.bf16x2") for op in ("add", "sub", "mul")]) == instead
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(256, generator=generator).bfloat16() for _ in range(2))
    x[:4] = torch.tensor([float("inf"), 3.3e38, 1e-40, float("nan")])
    y[:4] = torch.tensor([float("-inf"), 3.3e38, -1e-40, 1.0])
    given = [value.view(torch.int16).numpy() for value in (x, y)]
    found, wanted = np.zeros(256, np.int16), np.zeros(256, np.int16)
    arrays = [*given, found]
    Machine(text, arrays).run([array.__array_interface__["data"][0] for array in arrays])
    memory = Memory()
    numbers = [memory.add_array(array, str(i)) for i, array in enumerate([*given, wanted])]
    run(module, "main", numbers, memory)
    ours, theirs = (torch.from_numpy(array).view(torch.bfloat16) for array in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


SCATTERED = """
def main(p: ptr[f32](divisibility=16), rows: ptr[i32], out: ptr[f32](divisibility=16), n: i32{hint}):
    i: i32[256] = arange(start=0, end=256)
    c: i32[256] = constant(value=32, type=i32[256])
    row: i32[256] = idiv(i, c)
    column: i32[256] = rem(i, c)
    q: ptr[i32][256] = splat(rows, shape=(256,))
    r: ptr[i32][256] = addptr(q, row)
    at: i32[256] = load(r)
    begin: i32[256] = mul(at, c)
    place: i32[256] = add(begin, column)
    s: ptr[f32][256] = splat(p, shape=(256,))
    t: ptr[f32][256] = addptr(s, i)
    x: f32[256] = load(t)
    o: ptr[f32][256] = splat(out, shape=(256,))
    u: ptr[f32][256] = addptr(o, place)
    m: i32[256] = splat(n, shape=(256,))
    inside: i1[256] = lt(i, m)
    old: f32[256] = atomic_rmw(u, x, inside, kind='add', sem='relaxed')
    return_()
"""


@pytest.mark.parametrize(
    ("architecture", "hint", "vector"), [(90, "(divisibility=16)", 4), (90, "", 1), (80, "(divisibility=16)", 1)]
)
def test_neighbours_are_added_at_once(architecture: int, hint: str, vector: int) -> None:
    module = parse(SCATTERED.format(hint=hint))
    module.functions["main"].attrs["num_warps"] = 1
    text = text_of(module, "main", architecture)
    assert (f"red.relaxed.gpu.global.add.v{vector}.f32" in text.llvm) == (vector > 1)
    x = np.arange(256, dtype=np.float32)
    rows, out = np.array([0, 3, 3, 1, 0, 2, 1, 3], np.int32), np.zeros((4, 32), np.float32)
    places = [array.__array_interface__["data"][0] for array in (x, rows, out)]
    Machine(text, [x, rows, out]).run([*places, 240])
    wanted = np.zeros((4, 32), np.float32)
    np.add.at(wanted, rows, np.where(np.arange(256) < 240, x, 0).reshape(8, 32))
    np.testing.assert_array_equal(out, wanted)


ASSEMBLY = """
def main(out: ptr[i32], n: i32):
    i: i32[256] = arange(start=0, end=256)
    {given}
    v: {type} = inline_asm(g, asm='nanosleep.u32 $1; mov.b32 $0, 0;', constraints='=r,r', dtypes=(i32,), pack=1{pure})
    o: ptr[i32][256] = splat(out, shape=(256,))
    s: ptr[i32][256] = addptr(o, i)
    store(s, i)
    return_()
"""


@pytest.mark.parametrize(
    ("type", "given"), [("i32", "g: i32 = constant(value=20, type=i32)"), ("i32[256]", "g: i32[256] = add(i, i)")]
)
@pytest.mark.parametrize(("pure", "stays"), [(", is_pure=False", True), ("", False)])
def test_instructions_that_do_something_stay_though_nobody_uses_what_they_give(
    type: str, given: str, pure: str, stays: bool
) -> None:
    text = text_of(parse(ASSEMBLY.format(type=type, given=given, pure=pure)), "main")
    assert ("nanosleep" in text.llvm) is stays
