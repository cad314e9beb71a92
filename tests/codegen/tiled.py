"""Triton text run by `stator.tile` on the CPU, or on a GPU: a schedule's kernels in turn, on the memory that it names.

Neighbours: `hopper.py` compiles the same text for a GPU; `test_matmul.py` compares products with eager.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from stator import passes
from stator.base.device import Device
from stator.base.dtypes import TORCH
from stator.base.options import Options
from stator.codegen import triton
from stator.fake.tensor import make
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import View
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.lowering.product import TAKES_LOOP
from stator.prims import DECOMPOSITIONS
from stator.runtime.artifact import Unit
from stator.sizes.strides import same_layout, span
from stator.targets import typical
from stator.targets.cuda import toolchain
from tests.cases.graphs import trace

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_NAMES = itertools.count()


def scheduled(fn: Callable[..., Any], *inputs: Tensor, device: Device | None = None) -> tuple[Schedule, list[Tensor]]:
    """A function as kernels for a GPU, every product as tiles; and what it takes."""
    device = device or typical("cuda")
    gm, lifted = trace(fn, inputs, DECOMPOSITIONS)
    passes.run(gm, passes.PIPELINE)
    for node in on_a_device(gm).graph.nodes:
        if node.target in PRODUCTS:
            node.meta[TAKES_LOOP] = True
    return schedule(lower(gm, "test", device), device), lifted


def on_a_device(gm: GraphModule) -> GraphModule:
    """The graph of tensors of the host as one of a GPU's."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["val"] = make(tuple(value.shape), value.dtype, torch.device("cuda"), tuple(value.stride()))
    return gm


def run(
    made: Schedule,
    inputs: Sequence[Tensor],
    folder: Path,
    shapes: Mapping[Kernel, triton.Shape] = MappingProxyType({}),
    record: Device | None = None,
) -> list[Tensor]:
    """The results of a schedule of launches: on the CPU, or on the GPU where the inputs lie there."""
    device = inputs[0].device
    record = record or typical("cuda", 0 if device.type == "cuda" else 2)  # few, so that a program has several tiles
    source = triton.emit(made.kernels, record, made.names, True, shapes)
    memory = memory_of(made, inputs, device)
    names = dict(zip(made.kernels, made.names, strict=True))
    launch = launcher(source, made.names, folder, device)
    for step in made.steps:
        assert isinstance(step, Launch), step
        launch(names[step.kernel], [memory[pointer.buffer][pointer.offset :] for pointer in step.args])
    outputs = []
    for output in made.outputs:
        assert isinstance(output, View)
        outputs.append(view(memory, output))
    return outputs


def view(memory: Mapping[str, Tensor], at: View) -> Tensor:
    """What lies there, in memory that may itself begin within that of an input."""
    flat = memory[at.buffer]
    size, stride = tuple(map(int, at.size)), tuple(map(int, at.stride))
    return flat.as_strided(size, stride, flat.storage_offset() + int(at.offset))


def memory_of(made: Schedule, inputs: Sequence[Tensor], device: torch.device) -> dict[str, Tensor]:
    """Every buffer in one dimension; what is not given holds what no kernel may leave there."""
    memory = {}
    for buffer, given in zip(made.inputs, inputs, strict=True):
        assert same_layout(buffer.size, given.stride(), buffer.stride), f"{buffer} has strides {given.stride()}"
        memory[buffer.name] = _flat(given)
    for name, buffer in made.buffers.items():
        if name not in memory:
            dtype = getattr(torch, TORCH[buffer.dtype])
            nothing = float("nan") if dtype.is_floating_point else 1
            memory[name] = torch.full((int(buffer.span),), nothing, dtype=dtype, device=device)
    return memory


def moved(tensor: Tensor, device: str) -> Tensor:
    """It on a device, with its strides: `Tensor.to` makes a contiguous one of what is expanded or has holes."""
    return _flat(tensor).to(device).as_strided(tensor.shape, tensor.stride())


def _flat(tensor: Tensor) -> Tensor:
    return tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,))


def launcher(
    source: str, names: Sequence[str], folder: Path, device: torch.device
) -> Callable[[str, Sequence[Tensor]], object]:
    if device.type == "cuda":
        kernels = toolchain.load([Unit(source, tuple(names), (), "triton")], "cuda", Options(cache_dir=str(folder)))
        return lambda name, given: kernels[name](*given)
    module = imported(source, folder)

    def launch(name: str, given: Sequence[Tensor]) -> object:
        known = module.LAUNCHES[name]
        options = {name: value for name, value in known["options"].items() if name in ("num_warps", "enable_fp_fusion")}
        return getattr(module, name)[(known["grid"],)](*given, **options)

    return launch


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
