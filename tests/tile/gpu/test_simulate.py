"""The simulator finds what it is there to find: races, copies that nobody waited for, holders that differ."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile.gpu.allocate import allocate
from stator.tile.gpu.barriers import insert_barriers
from stator.tile.gpu.operators import parse, text, verify
from stator.tile.gpu.simulate.memory import Race
from tests.tile.gpu.simulated import run_arrays

HEAD = """\
L0 = "64: register 1; lane 2 4 8 16 32; warp 0"
L1 = "64: register; lane 1 2 4 8 16; warp 32"
S0 = "64: offset 1 2 4 8 16 32"

@function(num_warps=2, shared=512)
def main(p: ptr[f32]):
    i: i32[64, L0] = arange(start=0, end=64, layout=L0)
    q: ptr[f32][64, L0] = splat(p, shape=(64,), layout=L0)
    q_1: ptr[f32][64, L0] = addptr(q, i)
    x: f32[64, L0] = load(q_1, vector=2)
"""
TAIL = """\
    j: i32[64, L1] = arange(start=0, end=64, layout=L1)
    o: ptr[f32][64, L1] = splat(p, shape=(64,), layout=L1)
    o_1: ptr[f32][64, L1] = addptr(o, j)
    y_1: f32[64, L1] = add(y, y)
    store(o_1, y_1)
    return_()
"""
ALLOC = "    b: ptr[f32, shared][64, S0] = local_alloc(type=ptr[f32, shared][64, S0], offset={})\n"
LOAD = "    y: f32[64, L1] = local_load(b, layout=L1)\n"
STORE = "    local_store(b, x)\n"
COPY = "    async_copy(b, q_1, vector=2)\n    async_commit()\n"
BARRIER = "    barrier()\n"


def ran(*lines: str) -> None:
    """Runs a kernel, which doubles 64 numbers."""
    module = parse(HEAD + "".join(lines) + TAIL)
    verify(module)
    data = np.arange(64, dtype=np.float32)
    run_arrays(module, "main", [data])
    assert data.tolist() == (np.arange(64) * 2).tolist()


def test_a_barrier_between_writes_and_reads_is_enough() -> None:
    ran(ALLOC.format(0), STORE, BARRIER, LOAD)
    ran(ALLOC.format(256), COPY, "    async_wait()\n", BARRIER, LOAD)
    ran("    y: f32[64, L1] = convert_layout(x, layout=L1, scratch=0)\n")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((ALLOC.format(0), STORE, LOAD), "without a barrier behind the write"),
        ((ALLOC.format(0), BARRIER, LOAD), "before anything has been written"),
        ((ALLOC.format(0), STORE, BARRIER, LOAD, STORE), "while another thread may read it"),
        ((ALLOC.format(508), STORE, BARRIER, LOAD), "outside of the 512 bytes"),
        ((ALLOC.format(0), COPY, BARRIER, LOAD), "before anything has been written"),
        ((ALLOC.format(0), STORE, BARRIER, COPY, LOAD), "while a copy is on its way there"),
        ((ALLOC.format(0), COPY, "    async_wait()\n", LOAD), "without a barrier behind the write"),
        ((ALLOC.format(0), COPY, "    async_wait(pending=1)\n", BARRIER, LOAD), "before anything has been written"),
        ((ALLOC.format(0), STORE, BARRIER, LOAD, BARRIER, COPY), "the program ends while copies are on their way"),
    ],
)
def test_races_are_found(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(Race, match=message):
        ran(*lines)


def test_two_tiles_in_one_place_are_a_race() -> None:
    other = ALLOC.format(0).replace(" b:", " c:") + "    local_store(c, x_1)\n"
    widened = "    x_1: f32[64, L1] = convert_layout(x, layout=L1, scratch=256)\n"
    with pytest.raises(Race, match="written by two threads without a barrier"):
        ran(widened, ALLOC.format(0), STORE, other, BARRIER, LOAD)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ((ALLOC.format(-1), STORE, LOAD), 1),
        ((ALLOC.format(-1), STORE, LOAD, STORE), 2),
        ((ALLOC.format(-1), COPY, "    async_wait()\n", LOAD), 1),
        ((ALLOC.format(-1), STORE, BARRIER, LOAD), 1),
        (("    y: f32[64, L1] = convert_layout(x, layout=L1)\n",), 0),
    ],
)
def test_barriers_are_put_where_there_would_be_races(lines: tuple[str, ...], wanted: int) -> None:
    module = parse(HEAD + "".join(lines) + TAIL)
    allocate(module.functions["main"])
    insert_barriers(module.functions["main"])
    verify(module)
    assert text(module).count("barrier()") == wanted
    data = np.arange(64, dtype=np.float32)
    run_arrays(module, "main", [data])
    assert data.tolist() == (np.arange(64) * 2).tolist()


def test_a_vector_that_is_none_is_found() -> None:
    wrong = HEAD.replace("addptr(q, i)", "addptr(q, i2)").replace(
        "    q: ptr", "    i2: i32[64, L0] = add(i, i)\n    q: ptr"
    )
    module = parse(wrong + ALLOC.format(0) + STORE + BARRIER + LOAD + TAIL)
    with pytest.raises(AssertionError, match="2 elements are no neighbours"):
        run_arrays(module, "main", [np.arange(128, dtype=np.float32)])
