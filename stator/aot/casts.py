"""Autocast while gradients are computed: eager casts in backward by what is in force there, not by what was in forward.

The backward graph is that of no autocast. It often is the same under the autocast that the call was compiled in, which
`gradients` finds out by computing them once more; under any other, backward runs by eager kernels (`eager_replay.py`).
Neighbours: `trace.py` asks for the gradients; `Metadata.casts` carries the answer; `runtime.py` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
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
    again = partial(run_backward, *roots, allow_unreachable=True, accumulate_grad=False)
    return found, casts if _repeats(tracer, again, _calls(tracer)[before:]) else ()


class _Differs(BaseException):
    """A call is another one. No program that has derivatives of its own handles it."""


def _repeats(tracer: Tracer, run: Callable[[], Any], calls: Sequence[fx.Node]) -> bool:
    """Whether what runs makes these calls once more; it is stopped at the first one that it does not make.

    That mostly is among the first, as the gradient of a bias is a sum, for which autocast has a dtype of its own.
    """
    made: list[fx.Node] = []
    same = True

    def compare(node: fx.Node) -> None:
        nonlocal same
        made.append(node)
        same = same and len(made) <= len(calls) and _signature(node) == _signature(calls[len(made) - 1])
        if not same:
            raise _Differs

    tracer.recorded = compare
    try:
        with tracer:
            run()
    except _Differs:
        return False
    finally:
        tracer.recorded = None
        for node in reversed(made):
            tracer.graph.erase_node(node)
    return same and len(made) == len(calls)


def _calls(tracer: Tracer) -> list[fx.Node]:
    return [node for node in tracer.graph.nodes if node.op == "call_function"]


def _signature(node: fx.Node) -> tuple[Any, Any]:
    """What a cast changes of a call: which overload it is, and the dtype of its result."""
    return node.target, getattr(node.meta["val"], "dtype", None)
