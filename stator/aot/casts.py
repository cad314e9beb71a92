"""Autocast while gradients are computed: eager casts in backward by what is in force there, not by what was in forward.

The backward graph is that of no autocast. It often is the same under the autocast that the call was compiled in, which
`gradients` finds out by computing them twice; under any other, backward runs by eager kernels (`eager_replay.py`).
Neighbours: `trace.py` asks for the gradients; `Metadata.casts` carries the answer; `runtime.py` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

if TYPE_CHECKING:
    from stator.aot.tracer import Tracer

#: (device type, dtype) of the autocasts in force.
Casts = tuple[tuple[str, str], ...]
#: The types of devices that graphs are compiled for.
DEVICES = ("cpu", "cuda")


def active(devices: Iterable[str] = DEVICES) -> Casts:
    """The autocasts that are enabled now, of these types of devices."""
    return tuple(
        [
            (kind, str(torch.get_autocast_dtype(kind)).removeprefix("torch."))
            for kind in devices
            if torch.is_autocast_enabled(kind)
        ]
    )


@contextmanager
def _paused(casts: Casts) -> Iterator[None]:
    with ExitStack() as stack:
        for kind, _ in casts:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def gradients(
    tracer: Tracer, outputs: Sequence[Any], tangents: Sequence[Any], leaves: Sequence[Any]
) -> tuple[Sequence[Any], Casts]:
    """A gradient or None for each leaf, traced without autocast; and the casts now in force if they change nothing."""
    # The engine's own entry: `torch.autograd.grad` imports SymPy to compare shapes that agree by construction.
    run_backward = torch.autograd.Variable._execution_engine.run_backward
    casts = active()
    roots = (tuple(outputs), tuple(tangents), bool(casts), False, tuple(leaves))
    before = len(_calls(tracer))
    with tracer, _paused(casts):
        found: Sequence[Any] = run_backward(*roots, allow_unreachable=True, accumulate_grad=False)
    if not casts:
        return found, ()
    first = _calls(tracer)[before:]
    with tracer:
        run_backward(*roots, allow_unreachable=True, accumulate_grad=False)
    second = _calls(tracer)[before + len(first) :]
    same = list(map(_signature, first)) == list(map(_signature, second))
    for node in reversed(second):
        tracer.graph.erase_node(node)
    return found, casts if same else ()


def _calls(tracer: Tracer) -> list[fx.Node]:
    return [node for node in tracer.graph.nodes if node.op == "call_function"]


def _signature(node: fx.Node) -> tuple[Any, Any]:
    """What a cast changes of a call: which overload it is, and the dtype of its result."""
    return node.target, getattr(node.meta["val"], "dtype", None)
