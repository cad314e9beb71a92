"""Small graphs as kernels: in the kernel IR, and as every target writes them.

`pytest --accept` writes the goldens; the difference is what a change does to generated code. Machines do not matter:
the device, its vectors and its threads are given.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.base.device import Device
from stator.codegen.c.emit import function_text
from stator.codegen.cpp.emit import emit_kernel
from stator.codegen.triton import launches
from stator.codegen.triton import printer as triton_printer
from stator.kernel import text as kernel_text
from stator.kernel.blocks import choose
from stator.kernel.decisions import decide
from stator.kernel.strategies import blocks, serial, vectors
from stator.loop import tables
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace
from tests.kernel.programs import checked

CPU, GPU = typical("cpu"), typical("cuda")
f32, bf16, i64 = torch.float32, torch.bfloat16, torch.int64


def counted(*size: int) -> Tensor:
    return torch.zeros(size, dtype=i64)


#: Graph → its function and example inputs, of which geometry and dtype count.
GRAPHS: dict[str, tuple[Callable[..., object], tuple[Tensor, ...]]] = {
    "pointwise": (lambda x, y: F.gelu(x * 2 + y), (torch.zeros(64, 96), torch.zeros(96))),
    "half": (lambda x, y: (x * y + 1).relu(), (torch.zeros(200, dtype=bf16), torch.zeros(200, dtype=bf16))),
    "integers": (lambda x: x // 3 % 5 + (x > 7), (counted(50),)),
    "transposed": (lambda x, y: x.t() + y, (torch.zeros(48, 80), torch.zeros(80, 48))),
    "joined": (lambda x, y: torch.cat([x, y[:, 1:]], 1) * 2, (torch.zeros(16, 5), torch.zeros(16, 9))),
    "softmax": (lambda x: x.softmax(-1), (torch.zeros(32, 100),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b), (torch.zeros(24, 64), *[torch.zeros(64)] * 2)),
    "long_softmax": (lambda x: x.softmax(-1), (torch.zeros(300, 20000),)),
    "long_layer_norm": (lambda x: F.layer_norm(x, (20000,)), (torch.zeros(300, 20000),)),
    "product": (
        lambda x, w, b: (x @ w + b).relu(),
        (torch.zeros(16, 32), torch.zeros(32, 48), torch.zeros(48)),
    ),
    "skinny": (
        lambda x, w, b: F.linear(x, w, b).relu(),
        (torch.zeros(5, 768), torch.zeros(264, 768), torch.zeros(264)),
    ),
    "windows": (lambda q, k: q @ k.mT * 0.5, (torch.zeros(8, 9, 24), torch.zeros(8, 20, 24))),
    "columns": (lambda x: x.sum(0), (torch.zeros(300, 40),)),
    "variance": (lambda x: x.var(), (torch.zeros(5000),)),
    "best": (lambda x: x.argmax(1), (torch.zeros(12, 77),)),
    "running": (lambda x: x.cumsum(1), (torch.zeros(6, 33),)),
    "gathered": (lambda w, i: w[i] * 3, (torch.zeros(40, 16), counted(9))),
    "scattered": (lambda x, i, v: x.index_add(0, i, v), (torch.zeros(10, 8), counted(6), torch.zeros(6, 8))),
}


def scheduled(name: str, device: Device) -> Schedule:
    function, inputs = GRAPHS[name]
    gm, _ = trace(function, inputs, DECOMPOSITIONS)
    return schedule(lower(gm, name, CPU), device)


@pytest.mark.parametrize("name", GRAPHS)
def test_generated_code(name: str, golden: Callable[[str, str], None]) -> None:
    with tables.session():
        host, gpu = scheduled(name, CPU), scheduled(name, GPU)
        functions = [checked(serial(kernel, label)) for kernel, label in zip(host.kernels, host.names, strict=True)]
        plans = [(decide(kernel, CPU), label) for kernel, label in zip(host.kernels, host.names, strict=True)]
        lanes = [
            checked(blocks(choose(kernel, GPU), label)) for kernel, label in zip(gpu.kernels, gpu.names, strict=True)
        ]
        sections = {
            "the kernel IR": [kernel_text.function_text(function) for function in functions],
            "plain C": [function_text(function) for function in functions],
            "the kernel IR, for vectors of 64 bytes": [kernel_text.function_text(checked(vectors(*p))) for p in plans],
            "C++": [emit_kernel(*plan) for plan in plans],
            "the kernel IR, for blocks of a GPU": [kernel_text.function_text(function) for function in lanes],
            "Triton": [
                f"{triton_printer.function_text(function)}\n\n{launches.launch_text(function, GPU.warp)}"
                for function in lanes
            ],
        }
    golden(
        name,
        "\n\n".join(f"==== {title}\n\n" + "\n\n".join(map(str.rstrip, texts)) for title, texts in sections.items())
        + "\n",
    )
