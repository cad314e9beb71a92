"""`torch.vmap`: one call of the graph, whose function is a graph of its own.

The machine runs the mapped function once, on fakes of one element, as torch runs it once; what it puts into the graph
is taken out again (`GraphBuilder.cut`) and becomes the body of a `Mapped` node. What eager tells such a function about
its tensors other than by their values is not all the same as of one element: those questions are refused, as are
writes to what comes from outside.
Invariant: no node of the body is used behind it; `frames.leaked` ends the graph before the call where one is.
Neighbours: `graph.py`, `graphs/mapped.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from stator.base.errors import GraphBreak, Undecided
from stator.capture.source import ConstSource
from stator.capture.value import Raised
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.registry import NAMED_CALLS, wrap
from stator.capture.values.torch.tensor import TensorValue, call_graph
from stator.fake import FakeTensor, make
from stator.graphs.mapped import Mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx

    from stator.capture.machine import Machine
    from stator.capture.value import Value


def call_mapped(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What `torch.vmap(function, …)(…)` comes down to, once its arguments are checked and flat."""
    function, _, in_dims, flat, structure, out_dims, randomness = args
    if randomness.constant() != "error":
        raise GraphBreak("torch.vmap of a function with random numbers is not modelled")
    graph = tx.graph
    dims = [dim.constant() for dim in in_dims.unpack(tx)]
    given = flat.unpack(tx)
    written = {node: writes(node) for node in graph.graph.nodes}
    last, grad_enabled = next(iter(reversed(graph.graph.nodes)), None), graph.grad_enabled
    split = [value for value, dim in zip(given, dims, strict=True) if dim is not None]
    places = [dim for dim in dims if dim is not None]
    made = [element(tx, value, dim) for value, dim in zip(split, places, strict=True)]
    waiting = iter(made)
    elements = [value if dim is None else next(waiting) for value, dim in zip(given, dims, strict=True)]
    inputs = call(tx, pytree.tree_unflatten, ListValue(elements), structure)
    result = run_once(tx, function, inputs.unpack(tx), kwargs)
    flat_result, result_structure = call(tx, pytree.tree_flatten, result).unpack(tx)
    outputs = [item.node for item in flat_result.unpack(tx) if isinstance(item, TensorValue)]
    out_places = places_of(tx, out_dims, result_structure)
    if len(outputs) != len(out_places) or graph.grad_enabled is not grad_enabled:
        raise GraphBreak("a function that torch.vmap maps gives more than tensors, or changes a mode")
    starts = [value.node for value in made]
    body, read = graph.cut(last, starts, outputs)
    if any(writes(node) != written.get(node, (0, False)) for node in (*written, *starts, *read)):
        raise GraphBreak("a function that torch.vmap maps writes to a tensor from outside of it")
    mapped = Mapped(body, (*places, *([None] * len(read))), tuple(out_places))
    results = call_graph(tx, "call_function", mapped, [*split, *map(of_node, read)], {})
    return call(tx, pytree.tree_unflatten, ListValue(results.unpack(tx)), result_structure)


NAMED_CALLS["torch._functorch.vmap", "_flat_vmap"] = call_mapped
#: Torch makes itself ready for mapping, once; it does when a node is run.
NAMED_CALLS["torch._functorch.predispatch", "lazy_load_decompositions"] = lambda tx, args, kwargs: NONE


def call(tx: Machine, function: Any, *args: Value) -> Value:
    """A Python function of torch, run by the machine."""
    return wrap(tx, function, ConstSource(function)).call(tx, args, {})


def run_once(tx: Machine, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The function's result for one element."""
    graph = tx.graph
    graph.mapping += 1
    graph.mapped += 1
    try:
        return function.call(tx, args, kwargs)
    except Raised as raised:
        raise GraphBreak("a function that torch.vmap maps raises an exception") from raised
    finally:
        graph.mapping -= 1


def element(tx: Machine, value: Value, dim: int) -> TensorValue:
    """What stands for one element of a batch while the function is captured."""
    assert isinstance(value, TensorValue)
    batch = value.fake
    size, stride = list(batch.shape), list(batch.stride())
    del size[dim], stride[dim]
    fake = make(size, batch.dtype, batch.device, stride)
    return TensorValue(tx.graph.record(torch.Tensor.select, (value.node, dim, 0), tx.location(), fake), fake)


def of_node(node: fx.Node) -> TensorValue:
    """A tensor of the graph that the function reads."""
    fake = node.meta["val"]
    if not isinstance(fake, FakeTensor):
        raise Undecided("a number in a function that torch.vmap maps")
    return TensorValue(node, fake)


def places_of(tx: Machine, out_dims: Value, structure: Value) -> list[int]:
    """For each result, the dimension along which its elements are put together."""
    found = call(tx, pytree._broadcast_to_and_flatten, out_dims, structure)
    places = [] if found.is_none() else [place.constant() for place in found.unpack(tx)]
    if not places or not all(isinstance(place, int) for place in places):
        raise GraphBreak("these out_dims of torch.vmap are not modelled")
    return places


def writes(node: fx.Node) -> tuple[int, bool]:
    """How often the tensor at a node has been written to."""
    fake = node.meta.get("val")
    if not isinstance(fake, FakeTensor):
        return 0, False
    return fake._version, fake.memory is not None and fake.memory.written
