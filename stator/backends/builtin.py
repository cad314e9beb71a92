"""stator's own backends: `inductor` compiles, `aot_eager` stops before lowering, `eager` before everything;
`cudagraphs` is `aot_eager`, recorded.

The two eager ones are for finding faults: the first that goes wrong says which half of the compiler to look at.
Each takes one captured graph and stator's `Options`. Neighbours: `registry` has the table that this file fills; its
functions are offered here too, so that whoever asks for a backend by name has the table filled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from stator.backends.atomic import atomic
from stator.backends.registry import Backend, enter, list_backends, lookup, register_backend
from stator.base.options import CAPTURE, PARTS, RECORD, TRACE, Options
from stator.graphs.nodes import forward_of

__all__ = ["eager", "list_backends", "lookup", "register_backend"]


def eager(gm: fx.GraphModule, example_inputs: list[Any], *, options: Options) -> Callable[..., Any]:
    """Run the captured graph by Python: what is wrong here is wrong in capture."""
    return atomic(gm, forward_of(gm), example_inputs)


enter(Backend("inductor", "stator.driver:compile_graph", own=True, parts=PARTS))
enter(Backend("aot_eager", "stator.backends.traced:aot_eager", own=True, parts=(CAPTURE, TRACE)))
enter(Backend("cudagraphs", "stator.backends.traced:cudagraphs", own=True, parts=(CAPTURE, TRACE, RECORD)))
enter(Backend("eager", eager, own=True))
