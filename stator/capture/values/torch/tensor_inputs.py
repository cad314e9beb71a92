"""Tensors that existed before the frame ran: inputs of the graph, and parameters and buffers that are part of it.

Invariant: tensors of classes that change what operators do are refused here, once for all.
Neighbours: `tensor.py`, `nn_module.py` (parameters), `capture/dynamic.py` (which sizes are symbolic).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from stator.base.errors import GraphBreak
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.registry import builds
from stator.capture.values.torch.tensor import TensorValue
from stator.capture.values.torch.tensor_class import PLAIN_CLASSES
from stator.fake import FakeTensor

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.source import Source

#: Until 2.12 torch has named dimensions.
NAMED = hasattr(torch.Tensor, "has_names")


def check_class(obj: torch.Tensor) -> None:
    """Refuses tensor subclasses that change what operators do."""
    if type(obj) not in PLAIN_CLASSES:
        raise GraphBreak(f"tensors of class {type(obj).__name__} are not modelled")
    if obj.layout is not torch.strided or obj.is_quantized:
        raise GraphBreak("sparse and quantized tensors are not modelled")
    if obj.is_nested:
        raise GraphBreak("nested tensors are not modelled")
    if torch._C._functorch.is_functorch_wrapped_tensor(obj):
        raise GraphBreak("tensors of a function transform are not modelled")
    if NAMED and obj.has_names():  # type: ignore[attr-defined]
        raise GraphBreak("tensors with named dimensions are not modelled")


@builds(torch.Tensor)
def build_tensor(tx: Machine, obj: torch.Tensor, source: Source) -> Value:
    """A tensor from outside is an input of the graph."""
    if isinstance(obj, FakeTensor):
        raise GraphBreak("the program holds a fake tensor")
    check_class(obj)
    geometry, facts = tx.graph.sizes.tensor(source, obj)
    watch.tensor(tx, source, facts)
    node, fake = tx.graph.placeholder(source, obj, tx.location(), geometry)
    return TensorValue(node, fake, type(obj), source=source, real=obj)


def build_attribute(tx: Machine, obj: torch.Tensor, source: Source) -> Value:
    """A parameter or buffer of a module is part of the graph, as the live object."""
    met = tx.values.get(id(obj))
    if met is not None:
        watch.identity(tx, source, obj)
        if isinstance(met, TensorValue) and met.node.op == "placeholder":
            watch.again(tx, source, met, obj)
        return met
    check_class(obj)
    watch.parameter(tx, source, obj)
    node, fake = tx.graph.attribute(source, obj, tx.location())
    value = TensorValue(node, fake, type(obj), source=source, real=obj)
    tx.values[id(obj)] = value
    return value
