"""What the function returns, described: values to compute, inputs given back, views of either.

Results that share memory share it afterwards too: views of an input are made again from the live input, views of a
value from the value, where that value is a result itself. Neighbours: `trace.py`; `metadata.Output` is the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.aot.functional import Cell
from stator.aot.metadata import Output
from stator.aot.tracer import Tracer
from stator.fake import FakeTensor
from stator.fake.graphs import root

aten = torch.ops.aten


@dataclass(slots=True)
class Results:
    """The description of each result, and the values that the forward graph computes for them."""

    outputs: list[Output]
    fakes: list[FakeTensor]
    nodes: list[fx.Node]


def describe(tracer: Tracer, inputs: list[FakeTensor], outputs: list[Any]) -> Results:
    """Sort the results into inputs, views and values."""
    bases = _bases(outputs)
    results = Results([], [], [])
    numbers: dict[int, int] = {}

    def value(fake: FakeTensor) -> int:
        if id(fake) not in numbers:
            numbers[id(fake)] = len(results.fakes)
            results.fakes.append(fake)
            results.nodes.append(_own_memory(tracer, fake, results.nodes))
        return numbers[id(fake)]

    for out in outputs:
        if not isinstance(out, torch.Tensor):
            results.outputs.append(Output("constant", constant=out))
            continue
        fake: FakeTensor = tracer.fakes((out,))[0]
        cell = fake.handle.cell
        if cell.input >= 0:
            results.outputs.append(_from_input(fake, inputs[cell.input], cell.input))
        elif bases.get(cell, fake) is not fake:
            base = value(bases[cell])
            results.outputs.append(Output("output_view", base, *_geometry(fake)))
        else:
            results.outputs.append(Output("value", value(fake)))
    return results


def _bases(outputs: list[Any]) -> dict[Cell, FakeTensor]:
    """For memory that is returned whole: the result that is the whole of it."""
    bases: dict[Cell, FakeTensor] = {}
    for out in outputs:
        if isinstance(out, FakeTensor) and out.handle is not None and not out.handle.steps:
            bases.setdefault(out.handle.cell, out)
    return bases


def _geometry(fake: FakeTensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(fake.shape), tuple(fake.stride()), int(fake.storage_offset())


def _from_input(fake: FakeTensor, source: FakeTensor, index: int) -> Output:
    if fake is source:
        return Output("input", index)
    size, stride, offset = _geometry(fake)
    return Output("input_view", index, size, stride, offset - int(source.storage_offset()))


def _own_memory(tracer: Tracer, fake: FakeTensor, others: list[fx.Node]) -> fx.Node:
    """The result's node, copied if at run time it would be an input or another result under a second name."""
    node = tracer.node(fake)
    if root(node).op == "placeholder" or node in others:
        return tracer.emit(aten.clone.default, node)
    return node
