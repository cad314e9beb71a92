"""Runs a captured graph on fakes, one torch-level call after the other, and says to the tracer which call it is.

Invariant: a refusal in the middle of a call names the program's line of that call.
Neighbours: `trace.py` asks; `tracer.py` records what the calls do; `restriding.py` has calls that are made otherwise;
`attributes.py` has the graph's own tensors.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch
from torch import fx

from stator.aot import overrides
from stator.aot.attributes import attribute, tensors_of
from stator.aot.restriding import rebind, view_instead
from stator.aot.tracer import Tracer
from stator.base.errors import DataDependent, Unsupported
from stator.graphs import composite


class Interpreter:
    """One captured graph and the tracer that is told of its calls."""

    def __init__(self, tracer: Tracer, gm: fx.GraphModule) -> None:
        self.tracer = tracer
        self.gm = gm

    def run(self, inputs: list[Any]) -> list[Any]:
        """The results: one entry for each of the graph's flat outputs."""
        values: dict[fx.Node, Any] = {}
        arguments = iter(inputs)
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(arguments)
                continue
            args = fx.node.map_arg(node.args, values.__getitem__)
            described = node.meta.get("val")
            if isinstance(described, torch.SymFloat):
                values[node] = described  # Python computes it, not the graph
                continue
            if node.op == "output":
                out = args[0]
                self.tracer.region = None
                return list(out) if isinstance(out, (list, tuple)) else [out]
            location, step = node.meta.get("location"), node.meta.get("step")
            operator = _operator(node)
            self.tracer.location, self.tracer.step, self.tracer.operator = location, step, operator
            self.tracer.region = node.meta.get("recompute")
            self.tracer.calls.begin(location, step, operator)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            try:
                make = view_instead(self.tracer, node, args)
                values[node] = self._call(node, args, kwargs) if make is None else composite.call(make, args, kwargs)
            except (Unsupported, DataDependent) as error:
                error.refused_at(location, step)
                raise
            if make is not None:
                torch.autograd.graph.increment_version(args[0])
                rebind(values, args[0], values[node])
        return []

    def _call(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        match node.op:
            case "call_function":
                function = overrides.CHECKED.get(node.target, node.target)
                return composite.call(function, args, kwargs)  # type: ignore[arg-type]
            case "call_method":
                method = getattr(torch.Tensor, str(node.target))
                return composite.call(overrides.CHECKED.get(method, method), args, kwargs)
            case "get_attr":
                value = attribute(self.gm, str(node.target))
                return self.tracer.fakes((value,))[0]
            case "call_module":
                module = self.gm.get_submodule(str(node.target))
                fakes = {name: self.tracer.fakes((t,))[0] for name, t in tensors_of(module, "")}
                return torch.func.functional_call(module, fakes, args, kwargs)
        raise Unsupported(node.op, "no such kind of node in a captured graph")


def _operator(node: fx.Node) -> str:
    """What a person calls the operator of a captured call: `gelu`, `layer_norm`, `add`."""
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "_opname", None) or getattr(target, "__name__", "")
    return _plain(str(name))


@cache
def _plain(name: str) -> str:
    """The last part of a name, as a word of Python's."""
    return re.sub(r"\W+", "_", name.rpartition(".")[2], flags=re.ASCII).strip("_").lower()
