"""What each pass makes of a small kernel, before and after, and what is decided of others."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import numpy as np
import pytest

from stator.tile.gpu.allocate import allocate
from stator.tile.gpu.barriers import insert_barriers
from stator.tile.gpu.operators import GPU_OPERATORS, parse, text, verify
from stator.tile.gpu.pipeline import PASSES, Pass, lower
from stator.tile.gpu.pipelining import pipeline_loops
from stator.tile.gpu.simplify import remove_unused
from stator.tile.ir.core import Module, Operation
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.text import module_text
from tests.tile.gpu.programs import PROGRAMS
from tests.tile.gpu.simulated import lowered, run_arrays

#: A pass → the kernel on which its golden is.
SHOWN = {
    "join": "transposed", "write_out": "one_turn", "assign": "scaled_rows", "join_laid_out": "product",
    "leave_loops": "product", "pipeline": "product", "prefetch": "product", "operands": "one_turn",
    "join_copied": "product", "leave_loops_copied": "product", "remove_unused": "product_f32",
    "allocate": "product_f32", "barriers": "product_f32",
}  # fmt: skip


def stages(name: str, num_warps: int = 4, num_stages: int = 3) -> dict[str, str]:
    """The text behind each pass."""
    compiled = PROGRAMS[name]()
    found: dict[str, str] = {}

    def keep(step: Pass, module: Module) -> None:
        found[step.name] = module_text(module, operators=GPU_OPERATORS if step.has_layouts else OPERATORS)

    lower(compiled.module, compiled.name, num_warps, num_stages, keep)
    return found


def operations(name: str, num_warps: int = 4, num_stages: int = 3) -> list[Operation]:
    compiled = PROGRAMS[name]()
    module = lower(compiled.module, compiled.name, num_warps, num_stages)
    return list(module.functions[compiled.name].body.walk())


def test_every_pass_is_shown() -> None:
    assert list(SHOWN) == [step.name for step in PASSES]


@pytest.mark.parametrize("step", SHOWN)
def test_before_and_after(step: str, golden: Callable[[str, str], None]) -> None:
    texts = list(stages(SHOWN[step]).items())
    number = [name for name, _ in texts].index(step)
    before = texts[number - 1][1] if number else module_text(PROGRAMS[SHOWN[step]]().module)
    after = texts[number][1]
    if step == "assign":
        golden(step, f"# before\n{before}\n# behind {step}\n{after}")
        return
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", f"behind {step}", lineterm="", n=1)
    golden(step, "\n".join(["", *lines])[1:] + "\n")


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_products_of_one_turn_are_right(warps: int) -> None:
    compiled = PROGRAMS["one_turn"]()
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((32, 64), (64, 32)))
    c = np.zeros((32, 32), np.float32)
    run_arrays(lowered(compiled.module, compiled.name, warps), compiled.name, [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_contiguous_rows_go_in_vectors() -> None:
    accesses = [o for o in operations("add") if o.op in ("load", "store")]
    assert [o.attrs["vector"] for o in accesses] == [4, 4, 4]
    assert not [o for o in operations("add") if o.op in ("convert_layout", "barrier")]


def test_a_row_is_loaded_as_the_tile_sees_it_and_stored_in_whole_sectors() -> None:
    found = operations("scaled_rows")
    loads = [o for o in found if o.op == "load"]
    assert [o.result.type.shape for o in loads] == [(16, 64), (64,)] and loads[0].attrs["vector"] == 8
    (store,) = [o for o in found if o.op == "store"]
    converted = [o for o in found if o.op == "convert_layout"]
    assert store.attrs["vector"] == 4 and [o.result for o in converted] == [store.operands[1]]


def test_a_transposed_tile_is_converted_once_and_stored_in_vectors() -> None:
    found = operations("transposed")
    assert [o.attrs["vector"] for o in found if o.op in ("load", "store")] == [4, 4]
    assert len([o for o in found if o.op == "convert_layout"]) == 1


def test_products_read_copies_that_are_turns_ahead() -> None:
    found = operations("product", num_stages=4)
    assert [o.attrs["type"].shape for o in found if o.op == "local_alloc"] == [(4, 32, 32), (4, 32, 32)]
    assert [o.attrs["pending"] for o in found if o.op == "async_wait"] == [2, 2, 0]
    loop = next(o for o in found if o.op == "for")
    inside = [o.op for o in loop.regions[0].walk()]
    assert inside.count("barrier") == 1 and "convert_layout" not in inside and "load" not in inside
    assert [o.op for o in operations("product", num_stages=1)].count("async_copy") == 0


def test_products_go_in_parts_whose_first_is_loaded_a_turn_ahead() -> None:
    found = operations("product")
    loop = next(o for o in found if o.op == "for")
    inside = [o for o in loop.regions[0].operations if o.op in ("local_load", "mma", "async_copy", "barrier")]
    assert [o.op for o in inside] == [
        "local_load", "local_load", "mma", "async_copy", "async_copy", "barrier", "local_load", "local_load", "mma"
    ]  # fmt: skip
    starts = [o.attrs["start"] for o in inside if o.op == "local_load"]
    assert starts == [(16, 0), (0, 16), (0, 0), (0, 0)]
    before = found[: found.index(loop)]
    assert [o.attrs["start"] for o in before if o.op == "local_load"] == [(0, 0), (0, 0)]
    assert loop.regions[0].operations[-1].operands[-2:] == (inside[-2].result, inside[-3].result)


def test_without_tensor_cores_products_read_shared_memory() -> None:
    found = operations("product_f32")
    assert [o.op for o in found if o.op in ("dot", "mma", "local_load")] == ["dot"]
    assert [o.op for o in found].count("async_copy") == 6  # three times two: before the loop twice, and in it


def test_what_a_product_gives_is_an_operand_in_the_same_thread() -> None:
    loop = next(o for o in operations("attention") if o.op == "for")
    inside = [o.op for o in loop.regions[0].walk()]
    assert inside.count("mma") == 2 and inside.count("local_load") == 2 and inside.count("barrier") == 1
    assert "convert_layout" not in inside and "load" not in inside


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", ["product", "product_f32"])
@pytest.mark.parametrize("turns", [0, 1, 5])
def test_pipelined_products_are_right(name: str, warps: int, stages: int, turns: int) -> None:
    compiled = PROGRAMS[name]()
    dtype, inner = (np.float16, 32) if name == "product" else (np.float32, 16)
    generator = np.random.default_rng(turns)
    a = generator.normal(size=(32, max(turns, 1) * inner)).astype(dtype)
    b = generator.normal(size=(max(turns, 1) * inner, 32)).astype(dtype)
    c = np.full((32, 32), np.nan, np.float32)
    module = lowered(compiled.module, compiled.name, warps, stages)
    run_arrays(module, compiled.name, [a, b, c, turns * inner, a.shape[1], 32, 32])
    expected = a.astype(np.float64) @ b.astype(np.float64) if turns else np.zeros((32, 32))
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("inner", [16, 48])
def test_loops_of_pipelined_loops_are_right(inner: int) -> None:
    compiled = PROGRAMS["products"]()
    generator = np.random.default_rng(inner)
    a = generator.normal(size=(4, 32, inner)).astype(np.float16)
    b = generator.normal(size=(4, inner, 32)).astype(np.float16)
    c = np.zeros((4, 32, 32), np.float32)
    run_arrays(lowered(compiled.module, compiled.name), compiled.name, [a, b, c, 4, inner])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)


COUNTED = """\
L0 = "16x16: register 0.1 8.0 0.8; lane 0.2 0.4 1.0 2.0 4.0; warp"
L1 = "16x16: register 0.1 0.2 0.4; lane 0.8 1.0 2.0 4.0 8.0; warp"
L2 = "16x16: register 0.1 8.0 0.8; lane 0.2 0.4 1.0 2.0 4.0; warp"
L3 = "16x16: register 1.0 8.0 0.8; lane 2.0 4.0 0.1 0.2 0.4; warp"
L4 = "256: register 1 2 4; lane 8 16 32 64 128; warp"


@function(num_warps=1)
def main(p: ptr[f16], o: ptr[f32], lower: i32, upper: i32):
    step: i32 = constant(value=1073741823, type=i32)
    q: ptr[f16][16, 16, L1] = splat(p, shape=(16, 16), layout=L1)
    r: i32[256, L4] = arange(start=0, end=256, layout=L4)
    s: i32[16, 16, L1] = reshape(r, shape=(16, 16))
    t: ptr[f16][16, 16, L1] = addptr(q, s)
    zero: f32[16, 16, L0] = constant(value=0.0, type=f32[16, 16, L0])
    sums: f32[16, 16, L0] = for_(lower, upper, step, zero)
    def body(i: i32, acc: f32[16, 16, L0]):
        x: f16[16, 16, L1] = load(t, vector=8)
        a: f16[16, 16, L2] = convert_layout(x, layout=L2)
        b: f16[16, 16, L3] = convert_layout(x, layout=L3)
        more: f32[16, 16, L0] = mma(a, b, acc)
        yield_(more)
    w: f32[16, 16, L1] = convert_layout(sums, layout=L1)
    u: ptr[f32][16, 16, L1] = splat(o, shape=(16, 16), layout=L1)
    v: ptr[f32][16, 16, L1] = addptr(u, s)
    store(v, w, vector=4)
    return_()
"""


@pytest.mark.parametrize(
    "bounds", [(0, 1), (2**31 - 2, 2**31 - 1), (-(2**31), 2**31 - 1), (5, -5), (-(2**31), 3 - 2**31)]
)
def test_turns_ahead_of_a_counter_that_wraps_around_are_none(bounds: tuple[int, int]) -> None:
    module = parse(COUNTED)
    function = module.functions["main"]
    pipeline_loops(function, 3)
    remove_unused(function, GPU_OPERATORS)
    allocate(function)
    insert_barriers(function)
    verify(module)
    assert "async_copy" in text(module)
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float16)
    out = np.zeros((16, 16), np.float32)
    run_arrays(module, "main", [x, out, *bounds])
    square = x.astype(np.float64) @ x.astype(np.float64)
    np.testing.assert_allclose(out, square * len(range(*bounds, 1073741823)), rtol=1e-5, atol=1e-4)
