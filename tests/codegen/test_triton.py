"""Triton text of the shared cases: it compiles for Hopper without a GPU, and on a GPU it agrees with eager.

Without a GPU every fifth case is compiled, and every fifth run by `stator.tile`, which covers each operator family
within the time of a test run; the GPU test takes all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stator import runtime
from stator.codegen import triton
from stator.loop.kernel import Kernel, Launch
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.plan.build import make
from stator.prims import DECOMPOSITIONS
from stator.targets.cuda.platform import AMD, NVIDIA, Platform
from stator.targets.cuda.record import typical
from tests.cases import CASES, Case, assert_close
from tests.cases.graphs import trace
from tests.codegen import hopper, tiled

RUNS = [pytest.param(case, dtype, id=f"{case.name}-{str(dtype)[6:]}") for case in CASES for dtype in case.dtypes]


def kernels_of(case: Case, dtype: torch.dtype, platform: Platform = NVIDIA) -> tuple[Kernel, ...]:
    gm, _ = trace(case.fn, case.make_inputs(dtype), DECOMPOSITIONS)
    device = typical(platform=platform)
    return schedule(lower(gm, "case", device), device).kernels


@pytest.mark.parametrize(("case", "dtype"), RUNS[::5])
def test_compiles_for_hopper(case: Case, dtype: torch.dtype) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    assert all(stages["cubin"] for stages in hopper.built(kernels_of(case, dtype)))


@pytest.mark.parametrize(("case", "dtype"), RUNS[3::20])
def test_compiles_for_a_gpu_of_amd(case: Case, dtype: torch.dtype) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    assert all(stages[AMD.binary] for stages in hopper.built(kernels_of(case, dtype, AMD), AMD))


@pytest.mark.filterwarnings("ignore:.*is interpreted, slowly:stator.tile.errors.CodeWarning")
@pytest.mark.parametrize(("case", "dtype"), RUNS[1::5])
def test_agrees_with_eager_on_the_cpu(case: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    """Run as the tile language has it. The text is that for AMD, which has no instructions of a maker's in it.

    Of a program that a library computes in part there are no kernels alone.
    """
    given = case.make_inputs(dtype)
    eager = case.fn(*[v.clone() if isinstance(v, torch.Tensor) else v for v in given])
    device = typical(platform=AMD)
    gm, inputs = trace(case.fn, given, DECOMPOSITIONS)
    made = schedule(lower(tiled.on_a_device(gm), "case", device), device)
    if not all(isinstance(step, Launch) for step in made.steps):
        pytest.skip("a library computes a part of it")
    found = tiled.run(made, [v.clone() if made.mutated else v for v in inputs], tmp_path, record=device)
    assert_close(tuple(found) if isinstance(eager, tuple | list) else found[0], eager, case, dtype)


#: Cases that eager itself does not run on CUDA, or where its CUDA kernels are less exact than its CPU ones.
NOT_ON_CUDA = {
    ("layer_norm_mixed", torch.bfloat16): "eager has no layer_norm of mixed dtypes on CUDA",
    ("average_pool_whole_numbers", torch.int64): "eager pools no integers on CUDA",
    ("max_pool2d", torch.int64): "eager pools no integers on CUDA",
    ("max_pool3d", torch.int64): "eager pools no integers on CUDA",
    ("addbmm_whole", torch.int64): "eager multiplies no batches of integers on CUDA",
    ("running_sum", torch.float16): "eager rounds at every element on CUDA",
    ("running_sum_long", torch.bfloat16): "eager rounds at every element on CUDA",
    ("average_pool_last", torch.float32): "eager's gradient is wrong on CUDA where only the input has channels last",
    ("average_pool_last", torch.float64): "eager's gradient is wrong on CUDA where only the input has channels last",
    **{
        ("last_wins", dtype): "which write wins is open on CUDA"
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64)
    },
}


def moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_agrees_with_eager_on_a_gpu(case: Case, dtype: torch.dtype) -> None:
    if reason := NOT_ON_CUDA.get((case.name, dtype)):
        pytest.skip(reason)
    given = tuple(moved(value, "cuda") for value in case.make_inputs(dtype))
    with torch.device("cuda"):  # what a case makes by itself is made there too
        eager = case.fn(*[v.clone() if isinstance(v, torch.Tensor) else v for v in given])
        gm, inputs = trace(case.fn, given, DECOMPOSITIONS)
    made = schedule(lower(gm, "case", typical()), typical())
    text = triton.emit(made.kernels, typical(), made.names)
    units = [runtime.Unit(text, made.names, (), "triton")] if made.names else []
    call = runtime.link(runtime.build(make(made), units))
    ours = call([v.clone() if isinstance(v, torch.Tensor) and made.mutated else v for v in inputs])
    assert_close(ours, eager, case, dtype)
