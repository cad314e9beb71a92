"""Triton text run on the CPU by `stator.tile`: a schedule's kernels one after the other, on the memory that it names.

Neighbours: `hopper.py` compiles the same text for a GPU; `test_matmul.py` compares products with eager.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from stator import passes
from stator.base.device import Device
from stator.codegen import triton
from stator.fake.tensor import make
from stator.kernel.matmul import Tiling
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import View
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.lowering.product import TAKES_LOOP
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_NAMES = itertools.count()


def scheduled(fn: Callable[..., Any], *inputs: Tensor, device: Device | None = None) -> tuple[Schedule, list[Tensor]]:
    """A function as kernels for a GPU, every product as tiles; and what it takes."""
    device = device or typical("cuda")
    gm, lifted = trace(fn, inputs, DECOMPOSITIONS)
    passes.run(gm, passes.PIPELINE)
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["val"] = make(tuple(value.shape), value.dtype, torch.device("cuda"), tuple(value.stride()))
        if node.target in PRODUCTS:
            node.meta[TAKES_LOOP] = True
    return schedule(lower(gm, "test", device), device), lifted


def run(
    made: Schedule, inputs: Sequence[Tensor], folder: Path, tilings: Mapping[Kernel, Tiling] = MappingProxyType({})
) -> list[Tensor]:
    """The results of a schedule of launches, in memory of the host."""
    source = triton.emit(made.kernels, replace(typical("cuda")), made.names, True, tilings)
    module = imported(source, folder)
    memory: dict[str, Tensor] = {}
    for buffer, given in zip(made.inputs, inputs, strict=True):
        memory[buffer.name] = given.as_strided((int(buffer.span),), (1,))
    for name, buffer in made.buffers.items():
        if name not in memory:
            dtype = getattr(torch, {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}.get(buffer.dtype, "uint8"))
            memory[name] = torch.full((int(buffer.span),), float("nan"), dtype=dtype) if dtype.is_floating_point else torch.zeros(int(buffer.span), dtype=dtype)
    names = dict(zip(made.kernels, made.names, strict=True))
    for step in made.steps:
        assert isinstance(step, Launch), step
        name = names[step.kernel]
        launch = module.LAUNCHES[name]
        args = [memory[pointer.buffer][pointer.offset :] for pointer in step.args]
        getattr(module, name)[(launch["grid"],)](*args)
    outputs = []
    for output in made.outputs:
        assert isinstance(output, View)
        outputs.append(memory[output.buffer].as_strided(output.size, output.stride, output.offset))
    return outputs


def imported(source: str, folder: Path) -> Any:
    """The text as a module of the tile language."""
    source = source.replace("import triton\n", "import stator.tile as triton\n")
    source = source.replace("import triton.language as tl\n", "import stator.tile.language as tl\n")
    source = source.replace(
        "from triton.language.extra import libdevice\n", "from stator.tile.language.extra import libdevice\n"
    )
    path = folder / f"kernels_{next(_NAMES)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
