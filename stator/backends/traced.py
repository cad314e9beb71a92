"""The backends `aot_eager` and `cudagraphs`: trace forward and backward, then run both by Python.

What is wrong with "inductor" and right with "aot_eager" is wrong in lowering or after it; what is wrong here and right
with "eager" is wrong in `aot` or `prims`. `cudagraphs` is the same with PyTorch's operators recorded by the device: no
code is generated, and nothing is compiled. Loaded when one of them is first named.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from stator import targets
from stator.aot.reference import Compiled, reference
from stator.base.device import HOST
from stator.base.errors import WithoutEffect
from stator.base.options import Options
from stator.graphs.calls import root
from stator.prims import RANDOM_OPERATORS
from stator.recording import record_call


def aot_eager(gm: fx.GraphModule, example_inputs: list[Any], *, options: Options) -> Callable[..., Any]:
    """The traced graphs, run by Python."""
    return _traced(gm, example_inputs, options)


def cudagraphs(gm: fx.GraphModule, example_inputs: list[Any], *, options: Options) -> Callable[..., Any]:
    """The traced graphs, recorded."""
    values = (*example_inputs, *[node.meta.get("val") for node in gm.graph.nodes])
    devices = dict.fromkeys([str(value.device) for value in values if isinstance(value, torch.Tensor)])
    device = next((name for name in devices if torch.device(name).type != HOST), HOST)
    if targets.recorder(device) is None:
        options.announce(WithoutEffect(f"the backend 'cudagraphs' has no effect on graphs of the {device}"))
        return _traced(gm, example_inputs, options)
    return _traced(gm, example_inputs, options, partial(_recorded, device, options))


def _traced(
    gm: fx.GraphModule,
    example_inputs: list[Any],
    options: Options,
    wrap: Callable[[Compiled, fx.GraphModule, str], Compiled] | None = None,
) -> Callable[..., Any]:
    budget = options.activation_memory_budget
    random_operators = {} if options.eager_random else RANDOM_OPERATORS
    return reference(gm, example_inputs, random_operators=random_operators, budget=budget, wrap=wrap)


def _recorded(device: str, options: Options, call: Compiled, graph: fx.GraphModule, name: str) -> Compiled:
    return record_call(call, name, _written(graph), device, options)


def _written(graph: fx.GraphModule) -> frozenset[int]:
    """The numbers of the inputs that operators of a graph write to."""
    inputs = {node: number for number, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    found = set()
    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if writes and isinstance(value, fx.Node) and root(value) in inputs:
                found.add(inputs[root(value)])
    return frozenset(found)
