"""Run traced graphs by Python and eager kernels: the meaning of what `aot` produces.

Views of results, and results that are views, are cut by strides that were planned on fakes. Where a kernel lays its
result otherwise they would read other elements, so it is laid out as planned first.

Neighbours: the backend "aot_eager" and the tests; `runtime.bind` joins the pieces.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from stator.aot.partition import partition
from stator.aot.runtime import bind
from stator.aot.symbols import origins, read
from stator.aot.trace import trace
from stator.base.promised import as_promised
from stator.base.workspaces import WORKSPACES
from stator.fake.symbolic import size_of
from stator.graphs.calls import is_view
from stator.sizes import Symbol, evaluate
from stator.sizes.real import from_bits, symbol_of

Compiled = Callable[[list[Any]], tuple[Any, ...]]


def by_python(module: fx.GraphModule) -> Compiled:
    """The graph in the form of a compiled one: from a list of tensors (and numbers) to a tuple."""
    places = origins([node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"])
    by_nodes = bool(places) or any(_keeps(node.target) for node in module.graph.nodes)
    forward = None if by_nodes else _checked(module).forward

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        # What a graph writes is not counted, as with kernels: the runtime tells autograd.
        inputs = [value.data if isinstance(value, torch.Tensor) else value for value in inputs]
        if forward is not None:
            return tuple(forward(*inputs))
        symbols = [place.symbol for place in places]
        return tuple(Sized(module, dict(zip(symbols, read(places, inputs), strict=True))).run(*inputs))

    return call


def _keeps(target: Any) -> bool:
    return isinstance(target, OpOverload) and str(target) in WORKSPACES


def _checked(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph, in which what a kernel made is laid out as planned before it is used."""
    graph = copy.deepcopy(module.graph)
    for node in list(graph.nodes):
        if _is_made(node):
            planned: torch.Tensor = node.meta["val"]
            with graph.inserting_after(node):
                promised = (str(node.target), tuple(planned.shape), tuple(planned.stride()))
                laid = graph.call_function(laid_out, (node, *promised))
            node.replace_all_uses_with(laid, delete_user_cb=lambda user, laid=laid: user is not laid)
    return fx.GraphModule(module, graph)


def _is_made(node: fx.Node) -> bool:
    """Whether a kernel has chosen how the value of the node lies, and the graph reads it."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor) or is_view(node):
        return False
    source = node.args[0] if node.target is operator.getitem else None
    kept = WORKSPACES.get(str(source.target)) if isinstance(source, fx.Node) else None
    return kept is None or node.args[1:] != (kept,)


def laid_out(made: Any, kernel: str, size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """What a kernel made, with the strides that views of it are cut by; it may leave a result undefined."""
    return as_promised(kernel, made, size, stride) if isinstance(made, torch.Tensor) else made


class Sized(fx.Interpreter):
    """Runs a graph with values in place of its symbols."""

    def __init__(self, module: fx.GraphModule, values: dict[Symbol, int]) -> None:
        super().__init__(module)
        self.values = values

    def run_node(self, n: fx.Node) -> Any:
        """The value of a node, laid out as planned."""
        out = super().run_node(n)
        if not _is_made(n):
            return out
        planned = n.meta["val"]
        size, stride = (self._filled(tuple(extents), n) for extents in (planned.shape, planned.stride()))
        return laid_out(out, str(n.target), size, stride)

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with numbers for sizes."""
        args, kwargs = n.args, n.kwargs
        return self._filled(tuple(args), n), {name: self._filled(value, n) for name, value in kwargs.items()}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call, recorded where the kernel keeps what its backward needs only then."""
        if not _keeps(target):
            return super().call_function(target, args, kwargs)
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return target(*args, **kwargs)

    def _filled(self, arg: Any, user: fx.Node) -> Any:
        match arg:
            case fx.Node():
                return self.env[arg]
            case torch.SymInt():
                return evaluate(size_of(arg), self.values)
            case torch.SymFloat():
                value = arg.node.value
                return value if isinstance(value, float) else from_bits(self.values[symbol_of(value)])
            case list() | tuple():
                return type(arg)([self._filled(item, user) for item in arg])
        return arg


def reference(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: Mapping[Any, Any] | None = None,
    random_operators: Mapping[Any, Any] | None = None,
    budget: float = 1.0,
    wrap: Callable[[Compiled, fx.GraphModule, str], Compiled] | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Trace, partition and bind a captured graph, with both halves run by Python.

    `wrap(call, graph, name)` gives what runs a half in place of its call.
    """
    joint = trace(gm, example_inputs, decompositions=decompositions or {}, random_operators=random_operators)
    parts = partition(joint, budget)
    halves = [(parts.forward, "forward"), (parts.backward, "backward")]
    calls = [by_python(half) if half is not None else None for half, _ in halves]
    if wrap is not None:
        named = zip(calls, halves, strict=True)
        calls = [wrap(call, half, name) if call and half else None for call, (half, name) in named]
    forward, backward = calls
    assert forward is not None
    return bind(parts.metadata, forward, backward, joint.attributes, gm)
