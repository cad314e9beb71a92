"""The backend `aot_eager`: trace forward and backward, then run both by Python.

What is wrong with "inductor" and right here is wrong in lowering or after it; what is wrong here and right with
"eager" is wrong in `aot` or `prims`. Loaded when it is first named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from stator.aot.reference import reference
from stator.base.options import Options
from stator.prims import RANDOM_OPERATORS


def aot_eager(gm: fx.GraphModule, example_inputs: list[Any], *, options: Options) -> Callable[..., Any]:
    """The traced graphs, run by Python."""
    budget = options.activation_memory_budget
    random_operators = {} if options.eager_random else RANDOM_OPERATORS
    return reference(gm, example_inputs, random_operators=random_operators, budget=budget)
