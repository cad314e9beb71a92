"""Products and attention down to machine code for NVIDIA's and AMD's GPUs, on a machine without either."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stator.codegen import triton
from stator.kernel.attention import Rows
from stator.kernel.matmul import Tiling
from stator.loop.kernel import Kernel
from stator.targets import typical
from stator.targets.cuda.worker import source_of
from tests.codegen import hopper, tiled
from tests.codegen.test_attention import EFFICIENT, FLASH, FLASH_BACK, Graph, heads

installed = pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
HALF = torch.bfloat16


def compiled(kernels: Sequence[Kernel], shapes: Mapping[Kernel, Any], target: tuple[Any, ...]) -> Iterator[Any]:
    """What Triton makes of each kernel for a target."""
    from triton.backends.compiler import GPUTarget

    source = triton.emit(kernels, typical("cuda"), check=True, shapes=shapes)
    with tempfile.TemporaryDirectory() as folder:
        module = hopper._imported(source, Path(folder))
        for name, launch in module.LAUNCHES.items():
            made = source_of(getattr(module, name), launch, anywhere=False, wide=False)
            yield installed.compile(made, target=GPUTarget(*target), options=dict(launch["options"]))


TARGETS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
#: What multiplies tiles of matrices in each target's assembly.
UNITS = {"sm_90": ("ptx", "wgmma.mma_async"), "gfx942": ("amdgcn", "v_mfma")}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
def test_products(turned: bool, target: str) -> None:
    tiling = Tiling(128, 64, 64, 2, 4, persistent=turned)
    x, w, b = (torch.empty(size, dtype=HALF) for size in ((1000, 520), (1024, 520), (1024,)))

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu(F.linear(x, w, b)) if turned else F.relu(x.mT @ x)

    made, _ = tiled.scheduled(fn, x, w, b)
    (found,) = compiled(made.kernels, dict.fromkeys(made.kernels, tiling), TARGETS[target])
    stage, unit = UNITS[target]
    assert unit in found.asm[stage]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("width", "causal"), [(64, True), (80, False)])
def test_attention(width: int, causal: bool, target: str) -> None:
    q, k, v = (heads(1, 4, 200, width, HALF) for _ in range(3))
    forward, backward = Graph(), Graph()
    node = forward.call(FLASH, *map(forward.given, (q, k, v)), 0.0, causal)
    given = [backward.given(x) for x in (q, q, k, v, q, torch.empty(1, 4, 200))]
    seeds = [backward.given(torch.zeros(())) for _ in range(2)]
    back = backward.call(FLASH_BACK, *given, None, None, 200, 200, 0.0, causal, *seeds)
    kernels = forward.scheduled([forward.part(node, i) for i in range(2)]).kernels
    kernels += backward.scheduled([backward.part(back, i) for i in range(3)]).kernels
    kernels = tuple([kernel for kernel in kernels if kernel.attention is not None])
    assert len(kernels) == 3
    rows = dict.fromkeys(kernels, Rows(64, 64, 2, 4)) if target == "gfx942" else {}
    stage, unit = UNITS[target]
    for found in compiled(kernels, rows, TARGETS[target]):
        assert unit in found.asm[stage]


def test_a_bias() -> None:
    q, k, v = (heads(1, 4, 200, 64, HALF) for _ in range(3))
    made = Graph()
    bias = torch.empty(1, 1, 200, 200, dtype=HALF).expand(1, 4, 200, 200)
    node = made.call(EFFICIENT, *map(made.given, (q, k, v, bias)), True)
    kernels = made.scheduled([made.part(node, 0)]).kernels
    (found,) = compiled(kernels, {}, TARGETS["sm_90"])
    assert "wgmma" in found.asm["ptx"]
