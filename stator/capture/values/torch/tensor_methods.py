"""Methods of tensors that are several calls of the graph, or none.

Numbers that a method takes may be in tensors: what eager does with them is written out in operators that round alike.
Neighbours: `tensor.py` (owns the table `SPECIAL_METHODS`), `autograd/gradients.py` (the methods of autograd).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from stator.capture.values.registry import fresh
from stator.capture.values.torch.tensor import SPECIAL_METHODS, TensorValue, call_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from stator.capture.machine import Machine
    from stator.capture.value import Value


def _type(tx: Machine, owner: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
    if not args and not kwargs:
        return fresh(torch.empty(0, dtype=owner.fake.dtype).type())
    return call_graph(tx, "call_method", "type", (owner, *args), kwargs)


def _new(tx: Machine, owner: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
    """`t.new(…)` takes a `torch.Size` for sizes, and any other sequence for data; in a graph both are tuples."""
    of_sizes = len(args) == 1 and args[0].python_type() is torch.Size
    return call_graph(tx, "call_method", "new_empty" if of_sizes else "new", (owner, *args), kwargs)


def _scaled(name: str, join: str) -> Callable[..., Value]:
    """`t.addcdiv_(a, b, value=…)` and `t.addcmul_(…)` with the number in a tensor: in steps, rounded as eager's."""

    def call(tx: Machine, owner: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
        value = kwargs.get("value")
        if not isinstance(value, TensorValue) or value.fake.dim() or len(args) != 2:
            return call_graph(tx, "call_method", name, (owner, *args), kwargs)
        scaled = call_graph(tx, "call_method", "mul", (args[0], value), {})
        added = call_graph(tx, "call_method", join, (scaled, args[1]), {})
        return call_graph(tx, "call_method", "add_", (owner, added), {})

    return call


def _summed(name: str) -> Callable[..., Value]:
    """`t.add_(x, alpha=…)` with the number in a tensor: a product, then the sum."""

    def call(tx: Machine, owner: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
        factor = kwargs.get("alpha")
        if len(args) != 1 or not all(is_plain_float(value) for value in (owner, *args, factor)):
            return call_graph(tx, "call_method", name, (owner, *args), kwargs)
        assert isinstance(factor, TensorValue)
        if factor.fake.dim() or factor.fake.requires_grad:
            return call_graph(tx, "call_method", name, (owner, *args), kwargs)
        scaled = call_graph(tx, "call_method", "mul", (args[0], factor), {})
        return call_graph(tx, "call_method", name, (owner, scaled), {})

    return call


def is_plain_float(value: Value | None) -> bool:
    """Whether it is a tensor of real numbers."""
    return isinstance(value, TensorValue) and value.fake.dtype.is_floating_point


SPECIAL_METHODS |= {
    **{name: _summed(name) for name in ("add", "add_", "sub", "sub_")},
    "addcdiv_": _scaled("addcdiv_", "div"),
    "addcmul_": _scaled("addcmul_", "mul"),
    "new": _new,
    "type": _type,
}
