"""Whether a tensor is a view, and of what: `Tensor._is_view()` and `Tensor._base`; `detach_()`, refused for views; and
how often a tensor that the graph computes was written to, `Tensor._version`.

Of a tensor that the graph computes the fakes know it, since autograd relates them as it relates real tensors. It must
be answered here: what a compiled graph returns is no view but of inputs and of other results (docs/autograd.md).
Neighbours: `tensor.py` (asks for both names), `graphs/lineage.py` (the same questions about real tensors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from stator.base.errors import GraphBreak
from stator.capture.source import AttrSource
from stator.capture.values import watch
from stator.capture.values.python.constant import NONE
from stator.capture.values.registry import fresh
from stator.capture.values.torch.tensor import SPECIAL_METHODS, TensorValue, answer, call_graph, refuse_mapped
from stator.fake.tensor import memory_of
from stator.graphs.lineage import whole_of

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


def is_view(tx: Machine, tensor: TensorValue) -> Value:
    """`tensor._is_view()`: guarded for one from outside."""
    refuse_mapped(tx, "_is_view")
    if tensor.real is not None:
        found = tensor.real._is_view()
        if tensor.source is not None:
            tx.guard("CALL", tensor.source, (torch.Tensor._is_view, found))
        return fresh(found)
    _refuse_inference(tx)
    return answer(tx, torch.Tensor._is_view, (tensor,), {})


def base(tx: Machine, tensor: TensorValue) -> Value:
    """`tensor._base`. That of a view from outside would be one more input."""
    refuse_mapped(tx, "_base")
    if tensor.real is not None:
        if tensor.real._base is not None or tensor.source is None:
            raise tensor.refuse("asking for the base of a view from outside")
        watch.equals(tx, AttrSource(tensor.source, "_base"), None)
        return NONE
    _refuse_inference(tx)
    found = tensor.fake._base
    if any(whole_of(leaf.fake) is found and leaf.example._is_view() for leaf in tx.graph.leaves()):
        raise tensor.refuse("asking for the base of a view of a view")
    return NONE if found is None else call_graph(tx, "call_function", getattr, (tensor, fresh("_base")), {})


def version(tx: Machine, tensor: TensorValue) -> Value:
    """`tensor._version`. What lies in memory from outside had been written to before, nobody knows how often."""
    refuse_mapped(tx, "_version")
    outside = [memory_of(leaf.fake) for leaf in tx.graph.leaves()]
    if tensor.real is not None or tensor.fake.is_inference() or memory_of(tensor.fake) in outside:
        raise tensor.refuse("asking how often it was written to")
    return fresh(tensor.fake._version)


def detach_in_place(tx: Machine, tensor: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
    """`tensor.detach_()`, which raises for a view; a fake of an input is none."""
    if tensor.real is not None and tensor.source is not None:
        found = tensor.real._is_view()
        tx.guard("CALL", tensor.source, (torch.Tensor._is_view, found))
        if found:
            raise tensor.refuse("detaching a view in place")
    return call_graph(tx, "call_method", "detach_", (tensor, *args), kwargs)


def _refuse_inference(tx: Machine) -> None:
    """Views of inference tensors are none to autograd; fakes of such inputs are ordinary tensors."""
    if any(leaf.example.is_inference() for leaf in tx.graph.leaves()):
        raise GraphBreak("asking whether something is a view where there are inference tensors")


SPECIAL_METHODS["_is_view"] = is_view
SPECIAL_METHODS["_base"] = base
SPECIAL_METHODS["_version"] = version
SPECIAL_METHODS["detach_"] = detach_in_place
