"""A small tracer for tests: runs a program in eager and writes down its ATen calls, decomposed.

Tensors are recognised by where they lie in memory, so that autograd's own handles on a value are the
value. In-place operators are written as their functional forms. It stands in for `stator.aot` where
a test only needs a graph with `meta["val"]`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode

Decompositions = Mapping[Any, Callable[..., Any]]


def _key(t: Tensor) -> tuple[Any, ...]:
    return t.data_ptr(), tuple(t.shape), t.stride(), t.dtype


class Recorder(TorchDispatchMode):
    """Writes each call to a graph."""

    def __init__(self, decompositions: Decompositions) -> None:
        super().__init__()
        self.graph = Graph()
        self.decompositions = decompositions
        self.known: dict[Any, Node] = {}
        self.kept: list[Any] = []
        self.constants: list[Tensor] = []

    def placeholder(self, value: Tensor, name: str) -> Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        self.remember(value, node)
        return node

    def remember(self, value: Tensor, node: Node) -> None:
        self.kept.append(value)
        self.known[id(value)] = node
        if value.numel():
            self.known[_key(value)] = node

    def node_of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            found = self.known.get(id(value)) or (self.known.get(_key(value)) if value.numel() else None)
            return found if found is not None else self._constant(value)
        if isinstance(value, tuple | list):
            return [self.node_of(v) for v in value]
        return value

    def _constant(self, value: Tensor) -> Node:
        first = next(iter(self.graph.nodes), None)
        with self.graph.inserting_before(first):
            node = self.placeholder(value, f"constant_{len(self.constants)}")
        self.constants.append(value)
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name.endswith("_") and not func._schema.name.endswith("__"):
            return self._in_place(func, args, kwargs)
        decomposition = self.decompositions.get(func)
        if decomposition is not None:
            with self:
                out = decomposition(*args, **kwargs)
            if out is not NotImplemented:
                self.kept.append(out)
                return out
        out = func(*args, **kwargs)
        if isinstance(out, Tensor | tuple | list):  # a number that the program asked for is a constant
            self._record(func, args, kwargs, out)
        return out

    def _in_place(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1].removesuffix("_")
        functional = getattr(getattr(torch.ops.aten, name), func._overloadname)
        with self:
            value = functional(args[0].clone(), *args[1:], **kwargs)
        func(*args, **kwargs)
        self.remember(args[0], self.node_of(value))
        return args[0]

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        named = {key: self.node_of(value) for key, value in kwargs.items()}
        node = self.graph.call_function(func, tuple(self.node_of(list(args))), named)
        node.meta["val"] = tuple(out) if isinstance(out, list) else out
        if isinstance(out, Tensor):
            self.remember(out, node)
            return
        for position, item in enumerate(out):
            if isinstance(item, Tensor):
                part = self.graph.call_function(operator.getitem, (node, position))
                part.meta["val"] = item
                self.remember(item, part)


def trace(
    fn: Callable[..., Any], inputs: tuple[Any, ...], decompositions: Decompositions
) -> tuple[GraphModule, list[Tensor], Any]:
    """(the graph, what to call it with, what eager gave while tracing)."""
    recorder = Recorder(decompositions)
    for position, value in enumerate(inputs):
        recorder.placeholder(value, f"arg{position}")
    with recorder:
        out = fn(*inputs)
    flat = list(out) if isinstance(out, tuple | list) else [out]
    outputs = tuple(recorder.node_of(value) for value in flat)
    recorder.graph.output(outputs)
    recorder.graph.eliminate_dead_code()
    lifted = [n.meta["val"] for n in recorder.graph.nodes if n.op == "placeholder"]
    return GraphModule(torch.nn.Module(), recorder.graph), lifted, out
