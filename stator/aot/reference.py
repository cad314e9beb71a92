"""Run traced graphs by Python and eager kernels: the meaning of what `aot` produces.

Neighbours: the backend "aot_eager" and the tests; `runtime.bind` joins the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from stator.aot.partition import partition
from stator.aot.runtime import bind
from stator.aot.trace import trace


def by_python(module: fx.GraphModule) -> Callable[[list[torch.Tensor]], tuple[Any, ...]]:
    """The graph in the form of a compiled one: from a list of tensors to a tuple."""

    def call(inputs: list[torch.Tensor]) -> tuple[Any, ...]:
        return tuple(module.forward(*inputs))

    return call


def reference(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: Mapping[Any, Any] | None = None,
    random_operators: Mapping[Any, Any] | None = None,
    budget: float = 1.0,
) -> Callable[..., tuple[Any, ...]]:
    """Trace, partition and bind a captured graph, with both halves run by Python."""
    joint = trace(gm, example_inputs, decompositions=decompositions or {}, random_operators=random_operators)
    parts = partition(joint, budget)
    backward = by_python(parts.backward) if parts.backward is not None else None
    return bind(parts.metadata, by_python(parts.forward), backward, joint.attributes)
