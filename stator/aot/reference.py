"""Run traced graphs by Python and eager kernels: the meaning of what `aot` produces.

Neighbours: the backend "aot_eager" and the tests; `runtime.bind` joins the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from stator.aot.partition import partition
from stator.aot.runtime import bind
from stator.aot.symbols import origins, read
from stator.aot.trace import trace
from stator.base.workspaces import WORKSPACES
from stator.fake.symbolic import size_of
from stator.sizes import Symbol, evaluate
from stator.sizes.real import from_bits, symbol_of


def by_python(module: fx.GraphModule) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The graph in the form of a compiled one: from a list of tensors (and numbers) to a tuple."""
    places = origins([node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"])
    by_nodes = bool(places) or any(_keeps(node.target) for node in module.graph.nodes)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        # What a graph writes is not counted, as with kernels: the runtime tells autograd.
        inputs = [value.data if isinstance(value, torch.Tensor) else value for value in inputs]
        if not by_nodes:
            return tuple(module.forward(*inputs))
        symbols = [place.symbol for place in places]
        return tuple(Sized(module, dict(zip(symbols, read(places, inputs), strict=True))).run(*inputs))

    return call


def _keeps(target: Any) -> bool:
    return isinstance(target, OpOverload) and str(target) in WORKSPACES


class Sized(fx.Interpreter):
    """Runs a graph with values in place of its symbols."""

    def __init__(self, module: fx.GraphModule, values: dict[Symbol, int]) -> None:
        super().__init__(module)
        self.values = values

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
) -> Callable[..., tuple[Any, ...]]:
    """Trace, partition and bind a captured graph, with both halves run by Python."""
    joint = trace(gm, example_inputs, decompositions=decompositions or {}, random_operators=random_operators)
    parts = partition(joint, budget)
    backward = by_python(parts.backward) if parts.backward is not None else None
    return bind(parts.metadata, by_python(parts.forward), backward, joint.attributes, gm)
