"""Runs loop programs on tensors: nests by the reference evaluator, extern calls by eager.

`run(program, inputs)` gives the outputs as tensors with the strides that the program states, and
leaves mutations in the inputs. Other stages that make something runnable from a program can be
compared with it case by case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stator.loop.evaluate import run_program
from stator.loop.nest import Buffer, Extern, Program, View
from stator.lowering.value import DTYPES

TORCH = {name: dtype for dtype, name in DTYPES.items()}


def storage(value: Tensor, buffer: Buffer) -> list[Any]:
    """The elements in memory from the tensor's first to its last."""
    if not buffer.span:
        return []
    return torch.as_strided(value, (buffer.span,), (1,), value.storage_offset()).tolist()


def overload(target: str) -> Any:
    space, name, variant = target.split(".")
    return getattr(getattr(getattr(torch.ops, space), name), variant)


def call_extern(node: Extern, read: Callable[[View], list[Any]], dtypes: dict[str, str]) -> list[list[Any]]:
    """The results of an extern call as row-major lists."""

    def build(argument: Any) -> Any:
        if isinstance(argument, View):
            flat = torch.tensor(read(argument), dtype=TORCH[dtypes[argument.buffer]])
            flat = flat.view(argument.size)
            for dim, step in enumerate(argument.stride):
                flat = flat.narrow(dim, 0, 1) if step == 0 and flat.shape[dim] > 1 else flat
            value = torch.empty_strided(flat.shape, argument.stride, dtype=flat.dtype).copy_(flat)
            return value.expand(argument.size)
        if isinstance(argument, tuple):
            return [build(item) for item in argument]
        if isinstance(argument, str) and argument.startswith("torch."):
            return eval(argument, {"torch": torch})
        return argument

    out = overload(node.target)(*[build(a) for a in node.args], **{k: build(v) for k, v in node.kwargs})
    every = out if isinstance(out, tuple | list) else [out]
    results = [every[i] for i in node.taken]
    for result, buffer in zip(results, node.outputs, strict=True):
        assert tuple(result.shape) == buffer.size and DTYPES[result.dtype] == buffer.dtype
    return [result.reshape(-1).tolist() for result in results]


def run(program: Program, inputs: Sequence[Tensor]) -> list[Any]:
    """The program's outputs."""
    dtypes = {name: buffer.dtype for name, buffer in program.buffers.items()}
    given = {b.name: storage(t, b) for b, t in zip(program.inputs, inputs, strict=True)}
    memories = run_program(program, given, lambda node, read: call_extern(node, read, dtypes))

    def tensor(name: str) -> Tensor:
        buffer = program.buffers[name]
        values = [memories[name].read(i) for i in range(buffer.span)]
        return torch.tensor(values, dtype=TORCH[buffer.dtype])

    for buffer, value in zip(program.inputs, inputs, strict=True):
        if buffer.name in program.mutated:
            target = torch.as_strided(value, (buffer.span,), (1,), value.storage_offset())
            target.copy_(tensor(buffer.name))
    outputs: list[Any] = []
    for output in program.outputs:
        if not isinstance(output, View):
            outputs.append(output)
            continue
        memory = tensor(output.buffer)
        if 0 in output.size:
            outputs.append(torch.empty_strided(output.size, output.stride, dtype=memory.dtype))
        else:
            outputs.append(torch.as_strided(memory, output.size, output.stride, output.offset))
    return outputs
