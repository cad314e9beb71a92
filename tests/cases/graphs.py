"""The forward graph of a plain function of tensors, recorded by the tracer of `stator.aot`.

For tests of the stages behind it. Where `stator.aot.trace` describes results that are inputs, or views of them, for
the runtime, here each result is a node of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from stator.aot import overrides as overrides  # fills the tracer's table
from stator.aot.functional import Cell, Handle
from stator.aot.tracer import Tracer
from stator.fake import make
from stator.graphs import composite
from stator.graphs.nodes import module


def trace(
    fn: Callable[..., Any], inputs: tuple[Tensor, ...], decompositions: Mapping[Any, Callable[..., Any]]
) -> tuple[GraphModule, list[Tensor]]:
    """(the graph, what to call it with: the inputs and the tensors that the function holds itself)."""
    tracer = Tracer(decompositions, {})
    fakes = []
    for position, real in enumerate(inputs):
        fake = make(real.shape, real.dtype, real.device, real.stride(), real.storage_offset())
        node = tracer.placeholder(f"arg{position}", fake)
        fake.handle = Handle(Cell(node), (), node, fake)
        fakes.append(fake)
    with tracer, torch.autograd.set_multithreading_enabled(False):
        out = composite.call(fn, fakes, {})
    results = out if isinstance(out, tuple | list) else (out,)
    tracer.graph.output(tuple(tracer.node(result) for result in results))
    tracer.graph.eliminate_dead_code()
    return module(tracer.graph, "case"), [*inputs, *tracer.constants]
