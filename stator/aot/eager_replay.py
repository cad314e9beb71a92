"""Higher-order gradients: the captured graph runs a second time, by PyTorch's own kernels, and autograd records it.

Autograd does not record what a compiled backward computes. Where a caller asks for gradients that can be differentiated
(`create_graph=True`), they are computed from the inputs of the call instead, as eager does. That is refused, with the
reason, where a second run could give other results: the function draws random numbers, or inputs have been freed or
written to. Anomaly mode runs the graph the same way, to find the call whose gradient is NaN, and so does backward under
an autocast that changes it.
Neighbours: `runtime.py` keeps the inputs in view and asks; `attributes.py` has the order of the lifted tensors.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from stator.aot.attributes import attribute, lifted, tensors_of
from stator.aot.metadata import Metadata, TensorSpec
from stator.base.effects import LASTING
from stator.sizes.real import from_bits

Tensor = torch.Tensor


class EagerReplay:
    """A captured graph that can be run again under autograd."""

    __slots__ = ("attributes", "casts", "devices", "gm", "metadata", "refusal", "results")

    def __init__(self, gm: fx.GraphModule, metadata: Metadata) -> None:
        self.gm = gm
        self.metadata = metadata
        self.attributes = [id(tensor) for tensor in lifted(gm).values()]
        #: Where among the results of the graph each value is.
        self.results = {output.index: k for k, output in enumerate(metadata.outputs) if output.kind == "value"}
        kinds = {torch.device(spec.device).type for spec in metadata.inputs if isinstance(spec, TensorSpec)}
        #: The types of devices that compute: a tensor of type `meta` may be given, and read by nobody.
        self.devices = {"cpu", *[kind for kind in kinds if torch.amp.is_autocast_available(kind)]}
        #: The casts that are in force around the function, which is captured for these.
        self.casts = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in sorted(self.devices)
        ]
        self.refusal = self._refusal()

    def _refusal(self) -> str:
        """Why the function cannot run again; empty if it can."""
        if self.metadata.overwritten:
            return "the compiled function writes to its inputs"
        if self.metadata.uses_random:
            return "the compiled function draws random numbers"
        if not LASTING.isdisjoint(self.metadata.effects):
            return "the compiled function calls operators whose effects cannot be taken back"
        if any(value.differentiable and i not in self.results for i, value in enumerate(self.metadata.values)):
            return "the compiled function returns several views of one tensor"
        return ""

    def gradients(self, inputs: Sequence[Any], tangents: Sequence[Tensor | None]) -> list[Tensor | None] | None:
        """A gradient or None for each flat input, recorded by autograd where grad mode is on.

        None instead of the list if the run drew random numbers: they differ from those of the call.
        """
        states = self._generators()
        history = torch.is_grad_enabled()
        with torch.enable_grad():
            # Under names of their own: hooks of the inputs are for what comes out in the end.
            own = [value.view_as(value) if _differentiable(value) else value for value in inputs]
            outputs = self._run(own)
            pairs = [(outputs[self.results[i]], tangent) for i, tangent in enumerate(tangents) if tangent is not None]
            targets = [i for i, value in enumerate(own) if _differentiable(value)]
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                [own[i] for i in targets],
                [tangent for _, tangent in pairs],
                create_graph=history,
                allow_unused=True,
            )
        if not all(torch.equal(a, b) for a, b in zip(states, self._generators(), strict=True)):
            return None
        gradients: list[Tensor | None] = [None] * len(inputs)
        for i, gradient in zip(targets, found, strict=True):
            gradients[i] = gradient
        return gradients

    def _run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The results of the captured graph."""
        count = len(self.attributes)
        known = dict(zip(self.attributes, inputs[:count], strict=True))
        given = list(inputs[self.metadata.attributes :])
        for position in self.metadata.floats:
            number = position - self.metadata.attributes
            given[number] = from_bits(given[number])
        with ExitStack() as stack:
            for kind, enabled, dtype in self.casts:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            placeholders = sum(node.op == "placeholder" for node in self.gm.graph.nodes)
            results = _Interpreter(self.gm, known).run(*given[:placeholders])
            return results if isinstance(results, list | tuple) else [results]

    def _generators(self) -> list[Tensor]:
        """The states of the generators that the graph may draw from."""
        return [
            torch.get_rng_state() if kind == "cpu" else getattr(torch, kind).get_rng_state()
            for kind in sorted(self.devices)
        ]


class _Interpreter(fx.Interpreter):
    """Runs the captured graph with other tensors in place of its parameters."""

    def __init__(self, gm: fx.GraphModule, known: dict[int, Tensor]) -> None:
        super().__init__(gm)
        self.known = known
        self.anomaly = torch.is_anomaly_enabled()
        #: Nodes of autograd's graph that have their location already, or belong to what came before this graph.
        self.placed: set[Any] = {tensor.grad_fn for tensor in known.values()}

    def run_node(self, n: fx.Node) -> Any:
        """One call; what autograd records has the user's line, which anomaly mode tells."""
        value = super().run_node(n)
        if self.anomaly and n.op == "placeholder":
            self.placed.add(getattr(value, "grad_fn", None))
        elif self.anomaly and "location" in n.meta:
            self._place(value, n.meta["location"])
        return value

    def _place(self, value: Any, location: tuple[str, int]) -> None:
        file, line = location
        text = f'  File "{file}", line {line}\n    {linecache.getline(file, line).strip()}\n'
        stack: list[Any] = [item.grad_fn for item in tree_leaves(value) if isinstance(item, Tensor)]
        while stack:
            function = stack.pop()
            if function is not None and function not in self.placed:
                self.placed.add(function)
                function.metadata["traceback_"] = [text]
                stack += [parent for parent, _ in function.next_functions]

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter as the caller gave it."""
        value = attribute(self.module, str(target))  # type: ignore[arg-type]
        return self.known.get(id(value), value)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A module over the caller's parameters."""
        module = self.fetch_attr(str(target))
        named = {name: self.known.get(id(tensor), tensor) for name, tensor in tensors_of(module, "")}
        return torch.func.functional_call(module, named, args, kwargs)


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
