"""Products by warp groups, thread by thread: which loops have them in flight, what orders them, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from stator.tile.gpu.allocate import allocate
from stator.tile.gpu.barriers import insert_barriers
from stator.tile.gpu.buffers import bytes_of, scratch_of
from stator.tile.gpu.operators import parse, text
from stator.tile.gpu.pipeline import lower
from stator.tile.gpu.simulate.memory import Race
from stator.tile.ir.core import Module, Operation
from stator.tile.ir.parse import ParseError
from stator.tile.layouts.matrix import Matrix, plan_matrix
from stator.tile.layouts.memory import plain, rows_of_banks
from stator.tile.layouts.mma import group_columns, mma, warp_groups
from tests.tile.gpu.programs import product, products
from tests.tile.gpu.simulated import GROUP_REGISTERS, run_arrays
from tests.tile.kernels.test_attention import _attn_fwd

F16, F32 = torch.float16, torch.float32
SHAPE = {"M": 64, "N": 32, "K": 16}


def lowered(stages: int = 3) -> Module:
    compiled = product.warmup(F16, F16, F32, 64, 64, 32, 32, **SHAPE, grid=(1,)).compiled
    return lower(compiled.module, compiled.name, 4, stages, group_registers=GROUP_REGISTERS)


def operations(module: Module) -> list[Operation]:
    (function,) = module.functions.values()
    return list(function.body.walk())


def run(module: Module, turns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """What a product gives, and what it should."""
    generator = np.random.default_rng(turns)
    a = generator.normal(size=(64, max(turns, 1) * 16)).astype(np.float16)
    b = generator.normal(size=(max(turns, 1) * 16, 32)).astype(np.float16)
    c = np.full((64, 32), np.nan, np.float32)
    run_arrays(module, "product", [a, b, c, turns * 16, a.shape[1], 32, 32])
    return c, a.astype(np.float64) @ b.astype(np.float64) if turns else np.zeros((64, 32))


def test_the_code_of_a_product(golden: Callable[[str, str], None]) -> None:
    golden("warp_groups", text(lowered()))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("turns", [0, 1, 5])
def test_products_are_right(stages: int, turns: int) -> None:
    found, expected = run(lowered(stages), turns)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_loops_of_loops_are_right() -> None:
    compiled = products.warmup(F16, F16, F32, 2, 64, N=64, K=32, grid=(1,)).compiled
    module = lower(compiled.module, compiled.name, group_registers=GROUP_REGISTERS)
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=shape).astype(np.float16) for shape in ((2, 64, 64), (2, 64, 64)))
    c = np.zeros((2, 64, 64), np.float32)
    run_arrays(module, compiled.name, [a, b, c, 2, 64])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)


def attention(rows: int, columns: int, d: int) -> list[str]:
    """What a turn of attention does."""
    strides = [2 * 1024 * d, 1024 * d, d, 1]
    compiled = _attn_fwd.warmup(
        F16, F16, F16, 0.5, F32, F16, *strides * 4, 2, 2, N_CTX=1024, HEAD_DIM=d, BLOCK_M=rows, BLOCK_N=columns,
        STAGE=1, grid=(1,),
    ).compiled  # fmt: skip
    module = lower(compiled.module, compiled.name, group_registers=GROUP_REGISTERS)
    loop = next(o for o in operations(module) if o.op == "for")
    return [o.op for o in loop.regions[0].operations if o.op.startswith(("wgmma", "barrier", "async", "proxy"))]


def test_copies_begin_while_the_first_product_of_attention_goes_on() -> None:
    assert attention(128, 64, 64) == [
        "async_wait", "proxy_fence", "barrier", "wgmma", "async_copy", "async_copy", "async_commit", "wgmma_wait",
        "wgmma", "wgmma_wait",
    ]  # fmt: skip


# ---- what would be wrong


def without(op: str, count: int = 1) -> Module:
    """A product's loop that lacks the first operations of a kind."""
    module = lowered()
    loop = next(o for o in operations(module) if o.op == "for")
    found = [o for o in loop.regions[0].operations if o.op == op][:count]
    loop.regions[0].operations[:] = [o for o in loop.regions[0].operations if o not in found]
    return module


def test_without_a_fence_what_is_multiplied_is_not_seen() -> None:
    with pytest.raises(Race, match="no fence and barrier behind the write"):
        run(without("proxy_fence"))


def test_without_the_barrier_behind_the_fence_neither() -> None:
    with pytest.raises(Race, match="no fence and barrier behind the write"):
        run(without("barrier"))


def test_without_the_barrier_behind_the_wait_slots_are_filled_too_early() -> None:
    module = lowered()
    loop = next(o for o in operations(module) if o.op == "for")
    second = [o for o in loop.regions[0].operations if o.op == "barrier"][1]
    loop.regions[0].operations.remove(second)
    with pytest.raises(Race, match="written while another thread may read it"):
        run(module)


def test_more_products_in_flight_than_slots_are_a_race() -> None:
    module = lowered()
    next(o for o in operations(module) if o.op == "wgmma_wait").attrs["pending"] = 2
    with pytest.raises(Race, match="written while a warp group may read it"):
        run(module)


def test_sums_are_taken_behind_a_wait_alone() -> None:
    module = lowered()
    [o for o in operations(module) if o.op == "wgmma_wait"][-1].attrs["pending"] = 1
    with pytest.raises(Race, match="a product that nobody has waited for"):
        run(module)


def test_barriers_have_a_fence_before_them_where_warp_groups_read() -> None:
    """Of a tile that a thread has stored; what others read needs none."""
    module = lowered(1)
    (function,) = module.functions.values()
    before = [o.op for o in function.body.walk()]
    for operation in list(function.body.walk()):
        for region in operation.regions:
            region.operations[:] = [o for o in region.operations if o.op not in ("proxy_fence", "barrier")]
    insert_barriers(function)
    assert [o.op for o in function.body.walk()] == before
    body = next(o for o in function.body.walk() if o.op == "for").regions[0]
    ops = [o.op for o in body.operations if o.op in ("local_store", "proxy_fence", "barrier", "wgmma", "wgmma_wait")]
    assert ops == ["barrier", "local_store", "local_store", "proxy_fence", "barrier", "wgmma", "wgmma_wait"]


def test_scratch_is_elsewhere_while_a_warp_group_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loop copies may be computed behind a product that goes on, through scratch."""
    found = operations(lowered(1))
    product_ = next(o for o in found if o.op == "wgmma")
    line = f"wgmma({product_.operands[0].name}, "
    lines = text(lowered(1)).splitlines()
    place = next(number for number, each in enumerate(lines) if line in each)
    stored = next(o for o in found if o.op == "local_store").operands[1]
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    layout = "64x16: register 0.1 0.2 0.4; lane 1.0 2.0 4.0 8.0 16.0; warp 0.8 32.0"
    new = f"{indent}moved: f16[64, 16, L99] = convert_layout({stored.name}, layout=L99, scratch=-1)"
    given = "\n".join([f'L99 = "{layout}"', *lines[: place + 1], new, *lines[place + 1 :], ""])
    module = parse(given)
    (function,) = module.functions.values()
    monkeypatch.setattr(sys.modules[allocate.__module__], "APART", 0)
    allocate(function)
    changed = list(function.body.walk())
    moved = next(o for o in changed if o.op == "convert_layout" and o.result.name == "moved")
    buffers = [bytes_of(o) for o in changed if o.op == "local_alloc"]
    scratch = scratch_of(moved)
    assert scratch is not None and len(buffers) == 2 and not any(scratch.overlaps(each) for each in buffers)


# ---- layouts


def test_a_warp_group_has_rows_of_64_and_all_columns_of_an_instruction() -> None:
    assert [group_columns(warp_groups(*case)) for case in (
        ((128, 128), (1, 1)), ((128, 256), (2, 1)), ((64, 256), (1, 2)), ((64, 512), (1, 1)), ((64, 16), (1, 1)),
    )] == [128, 256, 128, 256, 16]  # fmt: skip
    assert warp_groups((128, 64), (2, 1)) == mma((128, 64), (8, 1))
    assert not group_columns(mma((64, 64), (2, 2))) and not group_columns(mma((2, 64, 64), (1, 4, 1)))


def test_descriptors_know_rows_of_banks() -> None:
    assert plan_matrix(rows_of_banks((64, 64), 2, (1, 0)), 2) == Matrix(1, 128, 64 * 128)
    assert plan_matrix(rows_of_banks((64, 256), 2, (1, 0)), 2) == Matrix(1, 128, 64 * 128)
    assert plan_matrix(rows_of_banks((32, 64), 2, (0, 1)), 2) == Matrix(0, 64, 64 * 64)
    assert plan_matrix(rows_of_banks((64, 16), 2, (1, 0)), 2) == Matrix(1, 32, 64 * 32)
    for shared, itemsize in (
        (plain((64, 64)), 2), (rows_of_banks((64, 8), 2, (1, 0)), 2), (rows_of_banks((64, 64), 4, (1, 0)), 4),
        (rows_of_banks((2, 64, 64), 2, (2, 1, 0)), 2),
    ):  # fmt: skip
        assert plan_matrix(shared, itemsize) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("offset 0.1 0.2 0.4 0.8 1.0 2.0 4.8", "offset 0.1 0.2 0.4 0.8 1.0 2.0 4.0", "no descriptor says where"),
        ('4.0; warp 16.0 32.0"\nL1', '4.0; warp 32.0 16.0"\nL1', "no layout of warp groups' results"),
        ("wgmma(v", "wgmma(left, v", "takes 3 operands, not 4"),
    ],
)
def test_what_warp_groups_do_not_take_is_refused(old: str, new: str, message: str) -> None:
    given = text(lowered())
    assert old in given and text(parse(given)) == given
    with pytest.raises(ParseError, match=message):
        parse(given.replace(old, new))
