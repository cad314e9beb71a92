"""Graphs that others run, call by call: one that raises has changed nothing, as with graphs that stator compiles.

Capture relies on it: the original runs in place of a call whose graph has raised. The tensors that the graph writes
(`gm.meta["written"]`) are kept for that, the states of the generators, and the modes of the thread that it turns. What
autograd has recorded on a tensor that had a history before cannot be taken back: such an exception says so, and nothing
runs again. Neighbours: `builtin.py` and `checked.py` wrap callables in this; `loop/failing.py` is the same for compiled
graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from stator.aot.casts import DEVICES
from stator.aot.generators import restoring
from stator.base.device import HOST
from stator.base.errors import mark_partly_done
from stator.graphs.lineage import set_versions
from stator.graphs.modes import TURNING, Modes

Compiled = Callable[..., Any]


class Kept:
    """A tensor as it was."""

    __slots__ = ("copy", "history", "place", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        #: The same memory in the same geometry, whatever becomes of the tensor.
        self.place = tensor.data
        self.copy = self.place.clone()
        self.history = tensor.grad_fn
        self.version = None if tensor.is_inference() else tensor._version

    def put_back(self) -> bool:
        """Undoes what was written; whether that was all."""
        tensor, place = self.tensor, self.place
        now = tensor.data
        same = (now.size(), now.stride(), now.data_ptr()) == (place.size(), place.stride(), place.data_ptr())
        if not same:
            tensor.data = place
        place.copy_(self.copy)
        if tensor.grad_fn is not self.history and self.history is None and not tensor._is_view():
            tensor.detach_()
        if self.version is not None:
            set_versions([(tensor, self.version)])
        return tensor.grad_fn is self.history


def atomic(gm: Any, compiled: Compiled, example_inputs: Sequence[Any]) -> Compiled:
    """The same callable, of which a call that raises has changed nothing."""
    if not isinstance(gm, fx.GraphModule):
        return compiled
    names = gm.meta.get("written", ())
    places = [i for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node.name in names]
    attributes = [getattr(gm, str(n.target)) for n in gm.graph.find_nodes(op="get_attr") if n.name in names]
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    devices = [torch.device(HOST), *{t.device for t in tensors if t.device.type in DEVICES} - {torch.device(HOST)}]
    turning = any(node.target in TURNING for node in gm.graph.nodes if node.op == "call_function")
    if places or attributes or turning:
        compiled = functools.partial(_attempt, compiled, places, attributes, turning)
    return functools.partial(restoring, devices, compiled)


def _attempt(
    compiled: Compiled, places: Sequence[int], attributes: Sequence[torch.Tensor], turning: bool, *inputs: Any
) -> Any:
    kept = [Kept(tensor) for tensor in (*attributes, *[inputs[i] for i in places])]
    modes = Modes(DEVICES) if turning else None
    try:
        return compiled(*inputs)
    except BaseException as error:
        if modes is not None:
            modes.put_back()
        undone = [item.put_back() for item in kept]
        if not all(undone):
            mark_partly_done(error)
        raise
