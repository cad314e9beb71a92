"""Triton text run by `stator.tile` on the CPU, or on a GPU: a schedule's kernels in turn, on the memory that it names.

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
from torch.fx import GraphModule

from stator import passes
from stator.aot.partition import partition
from stator.aot.trace import trace as traced
from stator.base.device import Device
from stator.base.dtypes import TORCH
from stator.base.options import Options
from stator.codegen import triton
from stator.fake.tensor import make
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import View
from stator.loop.resize import schedule_at
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.lowering.product import TAKES_LOOP
from stator.prims import DECOMPOSITIONS
from stator.runtime.artifact import Unit
from stator.sizes import OPERATIONS, Symbol, evaluate
from stator.sizes.strides import same_layout, span
from stator.targets import typical
from stator.targets.cuda import toolchain
from tests.aot.test_symbolic import captured
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


def symbolic(
    fn: Callable[..., Any], examples: Sequence[Tensor], dynamic: set[tuple[int, int]], ours: bool | None = True
) -> tuple[Schedule, ...]:
    """A function as kernels for a GPU where sizes (input, dim) are symbolic, and its gradients if some are wanted."""
    joint = traced(captured(fn, examples, dynamic), examples, decompositions=DECOMPOSITIONS)
    parts = partition(joint)
    return tuple([_scheduled(gm, ours) for gm in (parts.forward, parts.backward) if gm is not None])


def _scheduled(gm: GraphModule, ours: bool | None) -> Schedule:
    passes.run(gm, passes.PIPELINE)
    for node in on_a_device(gm).graph.nodes:
        if ours is not None and node.target in PRODUCTS:
            node.meta[TAKES_LOOP] = ours
    return schedule(lower(gm, "test", typical("cuda")), typical("cuda"))


def values_of(made: Schedule, inputs: Sequence[Tensor]) -> dict[Symbol, int]:
    """The symbols of a schedule, as inputs tell them."""
    found: dict[Symbol, int] = {}
    for buffer, given in zip(made.inputs, inputs, strict=True):
        for told, value in zip((*buffer.size, *buffer.stride), (*given.shape, *given.stride()), strict=True):
            found |= {symbol: int(value) for symbol in made.symbols if symbol.size is told}
    return found


def on_a_device(gm: GraphModule) -> GraphModule:
    """The graph of tensors of the host as one of a GPU's."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, tuple | list):
            node.meta["val"] = tuple(map(_moved, value))
        elif value is not None:
            node.meta["val"] = _moved(value)
    return gm


def _moved(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return make(tuple(value.shape), value.dtype, torch.device("cuda"), tuple(value.stride()))


def run(
    made: Schedule,
    inputs: Sequence[Tensor],
    folder: Path,
    shapes: Mapping[Kernel, triton.Shape] = MappingProxyType({}),
    record: Device | None = None,
) -> list[Tensor]:
    """The results of a schedule of launches: on the CPU, or on the GPU where the inputs lie there."""
    device = inputs[0].device
    few = replace(typical("cuda", 2), assembly="")  # so that a program has several tiles, of no GPU's instructions
    record = record or (typical("cuda") if device.type == "cuda" else few)
    record = record if device.type == "cuda" else replace(record, overlaps=False)
    source = triton.emit(made.kernels, record, made.names, True, shapes)
    sizes = values_of(made, inputs)
    fixed = schedule_at(made, sizes) if sizes else made
    memory = memory_of(fixed, inputs, device)
    names = dict(zip(made.kernels, made.names, strict=True))
    launch = launcher(source, made.names, folder, device)
    for step in made.steps:
        assert isinstance(step, Launch), step
        given = [memory[pointer.buffer][pointer.offset :] for pointer in step.args]
        launch(names[step.kernel], [*given, *[evaluate(size, sizes) for size in step.sizes]])
    outputs = []
    for output in fixed.outputs:
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
        memory[buffer.name] = _flat(given.view(_dtype(buffer.dtype)))
    for name, buffer in made.buffers.items():
        if name not in memory:
            dtype = _dtype(buffer.dtype)
            nothing = float("nan") if dtype.is_floating_point else 1
            memory[name] = torch.full((int(buffer.span),), nothing, dtype=dtype, device=device)
    return memory


def moved(tensor: Tensor, device: str) -> Tensor:
    """It on a device, with its strides: `Tensor.to` makes a contiguous one of what is expanded or has holes."""
    return _flat(tensor).to(device).as_strided(tensor.shape, tensor.stride())


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, TORCH[name])
    return dtype


def _flat(tensor: Tensor) -> Tensor:
    return tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,))


def launcher(
    source: str, names: Sequence[str], folder: Path, device: torch.device
) -> Callable[[str, Sequence[Any]], object]:
    if device.type == "cuda":
        kernels = toolchain.load([Unit(source, tuple(names), (), "triton")], "cuda", Options(cache_dir=str(folder)))
        return lambda name, given: kernels[name](*given)
    module = imported(source, folder)

    def launch(name: str, given: Sequence[Any]) -> object:
        known = module.LAUNCHES[name]
        options = {name: value for name, value in known["options"].items() if name in ("num_warps", "enable_fp_fusion")}
        if not known["sizes"]:
            return getattr(module, name)[(known["grid"],)](*given, **options)
        sizes = given[len(known["types"]) :]
        return getattr(module, name)[(computed(known["grid"], sizes),)](*given, WIDE=False, **options)

    return launch


def computed(program: int | Sequence[tuple[Any, ...]], sizes: Sequence[int]) -> int:
    """What a program over sizes computes, as launches do; a number is what it is."""
    if isinstance(program, int):
        return program
    stack: list[int] = []
    for op, *given in program:
        match op:
            case "const":
                stack.append(given[0])
            case "operand":
                stack.append(sizes[given[0]])
            case _:
                right = stack.pop()
                stack.append(OPERATIONS[op](stack.pop(), right))
    (result,) = stack
    return result


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
