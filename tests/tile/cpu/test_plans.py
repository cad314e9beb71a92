"""What is decided of well-known kernels: their loop nests, and what lies in buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stator.tile.cpu.launch import plan_of, text_of
from stator.tile.cpu.plan import Control, Plan, plan_text
from stator.tile.jit import CompiledKernel
from tests.tile.kernels import test_norms, test_products, test_rows

F = torch.float32
KERNELS: dict[str, Callable[[], CompiledKernel]] = {
    "add": lambda: test_rows.add_kernel.warmup(F, F, F, 1000, BLOCK_SIZE=1024, grid=(1,)),
    "softmax": lambda: test_rows.softmax_kernel.warmup(F, F, 64, 64, 9, 50, BLOCK_SIZE=64, num_stages=2, grid=(1,)),
    "layer_norm": lambda: test_norms._layer_norm_fwd_fused.warmup(
        F, F, F, F, F, F, 64, 50, 1e-5, BLOCK_SIZE=64, grid=(1,),
    ),
    "matmul": lambda: test_products.matmul_kernel.fn.warmup(
        F, F, F, 64, 64, 64, 64, 1, 64, 1, 64, 1, BLOCK_SIZE_M=32, BLOCK_SIZE_N=32, BLOCK_SIZE_K=16, GROUP_SIZE_M=8,
        ACTIVATION="leaky_relu", grid=(1,),
    ),
}  # fmt: skip


def planned(name: str) -> Plan:
    kernel = KERNELS[name]()
    return plan_of(kernel.compiled.module, kernel.name)


@pytest.mark.parametrize("name", KERNELS)
def test_plans(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, plan_text(planned(name)))


def test_contiguous_rows_are_read_as_vectors() -> None:
    text = text_of(planned("add"), 8).llvm
    assert "load <8 x float>" in text and "masked.gather" not in text


def test_a_sum_over_a_loop_is_carried_as_a_number() -> None:
    plan = planned("layer_norm")
    loops = [item for item in plan.body.items if isinstance(item, Control)]
    assert len(loops) == 3 and not plan.buffers
    carried = [[str(value.type) for value in item.operation.regions[0].args] for item in loops]
    assert carried == [["i32", "f32"], ["i32", "f32"], ["i32"]]


def test_pointers_that_advance_are_not_carried() -> None:
    plan = planned("matmul")
    (loop,) = [item for item in plan.body.items if isinstance(item, Control)]
    carried = loop.operation.regions[0].args[1:]
    assert sorted(str(value.type) for value in carried) == ["f32[32, 32]", "i64", "i64"]
    accumulator = next(value for value in carried if not value.type.is_scalar)
    assert plan.buffers[loop.operation.results[0]] is plan.buffers[accumulator]
    assert plan.buffers[loop.bodies[0].given[0]] is plan.buffers[accumulator]
