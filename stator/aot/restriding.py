"""Views that get another geometry in place (`v.t_()`): from then on the program has another view of the same memory.

A write to a view gives its base a new history, for which PyTorch has a tensor with a mode of its own, as a fake is,
make the view anew: by the calls that made it, of which one that changed it in place is none. The gradient would be that
of a write to the view as it was.

Neighbours: `interpreter.py` asks before it makes a call; `tracer.py` changes tensors that are no views.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from stator.aot.tracer import Tracer
from stator.base.errors import Unsupported
from stator.fake.tensor import FakeTensor
from stator.graphs.calls import RESTRIDING

#: Methods that give a tensor another geometry in place --> those that give another view.
_VIEWS: Mapping[str, Callable[..., Any]] = {name: getattr(torch.Tensor, name.rstrip("_")) for name in RESTRIDING}


def view_instead(tracer: Tracer, node: fx.Node, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What makes the view that the call changes its operand to, if that is a view which autograd may follow."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "_opname", None)
    make = _VIEWS.get(str(name or getattr(node.target, "__name__", "")))
    if make is None or not args or not isinstance(args[0], FakeTensor) or not args[0]._is_view():
        return None
    view = args[0]
    followed = view.requires_grad or tracer.takes_gradients
    if followed and view.handle.origin is view:
        text = "it changes the geometry of an input that is a view of another one"
        raise Unsupported(f"{name}", text, "take a new view of it instead")
    if view.requires_grad and not torch.is_grad_enabled():
        text = "it changes the geometry of a view that needs gradients, where none are recorded"
        raise Unsupported(f"{name}", text, "take a new view of it instead")
    return make if followed else None


def rebind(values: dict[fx.Node, Any], old: FakeTensor, new: FakeTensor) -> None:
    """What the program holds as `old` is from now on `new`."""
    for node, value in values.items():
        if value is old:
            values[node] = new
        elif isinstance(value, (tuple, list)) and any(item is old for item in value):
            values[node] = type(value)(new if item is old else item for item in value)
