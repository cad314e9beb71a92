"""What tile IR with layouts is: texts that are read and printed as they were, and what is refused, and why."""

from __future__ import annotations

import pytest

from stator.tile.gpu.operators import GPU_OPERATORS, parse, text, verify
from stator.tile.gpu.scratch import scratch_bytes
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.parse import ParseError
from stator.tile.ir.verify import GrammarError

HEAD = """\
L0 = "64x32: register 0.1 0.2 16.0 32.0; lane 0.4 0.8 0.16 1.0 2.0; warp 4.0 8.0"
L1 = "64x32: register 0.1 16.0 0.16 32.0; lane 0.2 0.4 1.0 2.0 4.0; warp 0.8 8.0"
L2 = "64x1: register 16.0 32.0; lane 0.0 0.0 0.0 1.0 2.0; warp 4.0 8.0"
L3 = "64: register 16 32; lane 0 0 0 1 2; warp 4 8"
L4 = "64x64: register 0.1 8.0 0.16 0.32 32.0; lane 0.2 0.4 1.0 2.0 4.0; warp 0.8 16.0"
L5 = "64x32: register 0.1 8.0 0.8 0.16 32.0; lane 0.2 0.4 1.0 2.0 4.0; warp 0.0 16.0"
L6 = "32x64: register 1.0 8.0 16.0 0.16 0.32; lane 2.0 4.0 0.1 0.2 0.4; warp 0.8 0.0"
L7 = "2: register 1; lane 0 0 0 0 0; warp 0 0"
L8 = "64: register 1; lane 2 4 8 16 32; warp 0 0"
S0 = "64x32: offset 0.1 0.2 0.4 0.8 0.16 1.0 2.0 4.0 8.0 16.0 32.0"


"""

KERNEL = (
    HEAD
    + """\
@function(num_warps=4, shared=0)
def main(p: ptr[f16], x: f16[64, 32, L0], y: f16[64, 32, L1], b: f16[32, 64, L6], a: f16[64, 32, L5], n: i32):
    q: ptr[f16][64, 32, L0] = splat(p, shape=(64, 32), layout=L0)
    z: f16[64, 32, L0] = load(q, vector=4)
    z_1: f16[64, 32, L0] = add(x, z)
    z_2: f16[64, 32, L1] = convert_layout(z_1, layout=L1)
    r: i32[64, L3] = arange(start=0, end=64, layout=L3)
    c: i32[64, 1, L2] = expand_dims(r, axis=1)
    d: i32[64, 32, L0] = broadcast(c, shape=(64, 32), layout=L0)
    s: i32[64, L3] = reduce(d, axis=1)
    def combine(one: i32, other: i32):
        more: i32 = add(one, other)
        yield_(more)
    zero: f32[64, 64, L4] = constant(value=0.0, type=f32[64, 64, L4])
    m: f32[64, 64, L4] = mma(a, b, zero)
    slots: ptr[f16, shared][2, 64, 32, S0] = local_alloc(type=ptr[f16, shared][2, 64, 32, S0])
    slot: ptr[f16, shared][64, 32, S0] = local_index(slots, n)
    async_copy(slot, q, vector=4)
    async_commit()
    async_wait(pending=1)
    barrier()
    w: f16[64, 32, L1] = local_load(slot, layout=L1)
    local_store(slot, w)
    store(q, x, vector=2)
    return_()
"""
)


def test_a_text_is_what_it_was_read_from() -> None:
    module = parse(KERNEL)
    verify(module)
    printed = text(module)
    again = parse(printed)
    verify(again)
    assert text(again) == printed and printed.count("vector=4") == 2
    assert operators(printed) == operators(KERNEL)


def operators(kernel: str) -> list[str]:
    body = kernel.split("def main")[1].splitlines()[1:]
    return [line.split(" = ")[-1].split("(")[0] for line in body]


REFUSED = {
    # operators on elements
    "add(x, y)": "takes operands of one type",
    "load(q, mask_1)": "the mask is",
    "addptr(q, d_1)": "have different layouts",
    "load(q, vector=8)": "first 8 registers of .* are no neighbours",
    "load(p, vector=2)": "a scalar is no vector",
    "load(q, vector=3)": "'vector' is a power of two, not 3",
    # what makes tiles
    "splat(p, shape=(64, 32))": "needs the layout",
    "splat(p, shape=(64, 32), layout=L4)": "is no layout of",
    "splat(p, shape=(64, 32), layout=S0)": "'layout' is a layout of threads",
    "constant(value=1.0, type=f32[64, 32])": "has no layout of registers",
    "arange(start=0, end=32, layout=L3)": "is no layout of",
    # views
    "broadcast(c, shape=(64, 32), layout=L1)": "convert the layout",
    "expand_dims(r, axis=1, layout=L2)": "follows from the operand's",
    "reshape(x, shape=(2048,), layout=L3)": "follows from the operand's",
    "split(pair)": "not every thread has both elements",
    "split(halves)": "no thread of .* has both halves",
    # between threads
    "convert_layout(x)": "needs the attribute 'layout'",
    "convert_layout(x, layout=L4)": "is no layout of",
    "sort(x, axis=0)": "does not go along registers first",
    # products
    "mma(x, b, zero)": "an operand is laid out as",
    "mma(a, b, none)": "no layout of tensor cores' results",
    "dot(x, b, zero)": "is no buffer in shared memory",
    "mma(a32, b32, zero, precision='ieee')": "do not multiply .* in precision ieee",
    # shared memory
    "local_alloc(type=f16[64, 32])": "is no buffer in shared memory",
    "local_alloc(type=ptr[f16, shared][64, 32])": "has no layout of memory",
    "local_alloc(type=ptr[f16, shared][2, 2, 64, 32, S0])": "is no layout of",
    "local_load(slots, layout=L0)": "has slots: take one",
    "local_load(slot, layout=L4)": "is no layout of",
    "local_load(slot, layout=L0, start=(0, 0, 0))": "is no element of",
    "local_load(slot, layout=L0, start=(64, 0))": "does not begin at",
    "local_store(slot, d)": "does not fit",
    "local_index(slot, n)": "has no slots",
    "local_index(slots, x)": "the number of a slot is an i32",
    "local_permute(slot, order=(0, 0))": "is no order of the axes",
    "async_copy(slot, q_f32)": "does not fit",
    "async_copy(slot)": "takes a buffer, pointers",
    "async_wait(pending=-1)": "'pending' is an int of at least 0",
    # gone
    "call(x, callee='f', types=())": "there is no operator call",
}
VALUES = """\
def main(p: ptr[f16], x: f16[64, 32, L0], y: f16[64, 32, L1], b: f16[32, 64, L6], a: f16[64, 32, L5], n: i32,
         q: ptr[f16][64, 32, L0], mask_1: i1[64, 32, L1], d: i32[64, 32, L0], d_1: i32[64, 32, L1], c: i32[64, 1, L2],
         r: i32[64, L3], pair: i32[2, "2: register; lane 1 0 0 0 0; warp 0 0"],
         halves: i32[32, 2, "32x2: register; lane 0.1 1.0 2.0 4.0 8.0; warp 16.0 0.0"], zero: f32[64, 64, L4],
         none: f32[64, 64, "64x64: register 0.1 0.2 16.0 32.0 0.32; lane 0.4 0.8 0.16 1.0 2.0; warp 4.0 8.0"],
         a32: f32[64, 32, L5], b32: f32[32, 64, L6], slot: ptr[f16, shared][64, 32, S0],
         slots: ptr[f16, shared][2, 64, 32, S0], q_f32: ptr[f32][64, 32, L0]):
    {}
    return_()
"""


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_none_is_refused(line: str) -> None:
    with pytest.raises(ParseError, match=REFUSED[line]):
        parse(HEAD + VALUES.format(line if line.startswith("async") else f"v, w = {line}"))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('L0 = "4: register"\n', "is not `shape: register"),
        ('L0 = "4: offset 1 2"\nL0 = "4: offset 2 1"\n', "a name of its own"),
        ("L0 = 4\n", "a name of its own"),
    ],
)
def test_layouts_of_a_text_are_layouts(head: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(head)


def test_a_reduction_wants_bits_that_go_along_one_axis() -> None:
    kernel = """\
def main(x: i32[8, 8, "8x8: register 1.1; lane 0.1 0.2 0.4 2.0 4.0; warp"]):
    s: i32[8, "8: register 1; lane 0 0 0 2 4; warp"] = reduce(x, axis=1)
    def combine(one: i32, other: i32):
        yield_(one)
    return_()
"""
    with pytest.raises(ParseError, match="go along axis 1 and another one at once"):
        parse(kernel)


def test_passes_are_checked_for_layouts() -> None:
    module = parse(KERNEL)
    load = next(o for o in module.functions["main"].body.operations if o.op == "load")
    load.attrs["vector"] = 8
    with pytest.raises(GrammarError, match="are no neighbours along an axis"):
        verify(module)


def test_every_operator_is_there_but_those_that_are_gone() -> None:
    assert OPERATORS.keys() - GPU_OPERATORS.keys() == {"call", "dot_scaled"}
    ours = {"convert_layout", "mma", "local_alloc", "local_index", "local_permute", "local_load", "local_store"}
    assert GPU_OPERATORS.keys() - OPERATORS.keys() == ours | {
        "async_copy", "async_commit", "async_wait", "local_tile", "wgmma", "wgmma_wait", "proxy_fence"
    }  # fmt: skip
    assert all(GPU_OPERATORS[name].doc for name in GPU_OPERATORS)


def test_what_works_in_scratch_says_how_much() -> None:
    found = {o.op: scratch_bytes(o) for o in parse(KERNEL).functions["main"].body.walk() if scratch_bytes(o)}
    assert found == {"convert_layout": 64 * 32 * 2}
