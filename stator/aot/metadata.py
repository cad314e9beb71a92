"""`Metadata`: all that the runtime must know about a traced function, as plain data.

Invariant: numbers, strings, booleans and tuples only, so it can be written to disk (`to_json`, `from_json`).
Flat inputs are numbered: lifted attributes, then the caller's tensors, then the seeds where there are any.
Neighbours: `trace.py` and `partition.py` fill it; `runtime.py` acts on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Geometry of one tensor; dtype and device in torch's names ("float32", "cuda:0")."""

    size: Ints
    stride: Ints
    dtype: str
    device: str
    requires_grad: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor, requires_grad: bool | None = None) -> TensorSpec:
        """The spec of a tensor, real or fake."""
        return cls(
            tuple(tensor.shape),
            tuple(tensor.stride()),
            str(tensor.dtype).removeprefix("torch."),
            str(tensor.device),
            tensor.requires_grad if requires_grad is None else requires_grad,
        )


@dataclass(frozen=True, slots=True)
class Output:
    """How one result of the function is made.

    kind "value": the forward graph's output number `index`;
         "input": flat input number `index` itself;
         "input_view": flat input number `index` as_strided by `size`, `stride`, `offset`;
         "output_view": the value number `index` as_strided by them;
         (views may have another `dtype` of the same width, and may be `detached` from the autograd graph)
         "constant": no tensor, the Python value `constant`.
    """

    kind: str
    index: int = 0
    size: Ints = ()
    stride: Ints = ()
    offset: int = 0
    constant: Any = None
    dtype: str = ""
    detached: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One user value that the forward graph computes; differentiable ones have a tangent."""

    spec: TensorSpec
    differentiable: bool


@dataclass(frozen=True, slots=True)
class Saved:
    """One tensor kept for backward: an "input", a user "value", or an "extra" output of the forward graph."""

    source: str
    index: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The forward graph gives `(*values, *extra saved)`, the backward graph takes `(*saved, *tangents)`."""

    inputs: tuple[TensorSpec, ...]
    attributes: int
    outputs: tuple[Output, ...]
    values: tuple[Value, ...]
    #: Flat inputs that the forward graph writes to.
    mutated: Ints = ()
    #: (flat input, value): what the runtime copies into inputs that autograd must see written.
    assigned: tuple[tuple[int, int], ...] = ()
    saved: tuple[Saved, ...] = ()
    #: Flat inputs that get a gradient; the backward graph gives one value or None for each flat input.
    gradients: Ints = ()
    has_backward: bool = False
    #: Device of the seeds, which are then the last flat input ("" where no random numbers are used).
    seed_device: str = ""

    @property
    def uses_random(self) -> bool:
        """Whether the last flat input is the seeds."""
        return bool(self.seed_device)

    @property
    def draws(self) -> int:
        """How many seeds a call needs: one for every draw of random numbers."""
        return self.inputs[-1].size[0] if self.uses_random else 0

    @property
    def overwritten(self) -> Ints:
        """Flat inputs that hold something else after a call."""
        return (*self.mutated, *(target for target, _ in self.assigned))

    @property
    def tangents(self) -> tuple[TensorSpec, ...]:
        """What the tangents that the backward graph takes look like, in order."""
        return tuple(value.spec for value in self.values if value.differentiable)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """From the text of `to_json`."""
        data = json.loads(text)
        return cls(
            inputs=tuple(_spec(item) for item in data["inputs"]),
            attributes=data["attributes"],
            outputs=tuple(
                Output(**{**item, "size": tuple(item["size"]), "stride": tuple(item["stride"])})
                for item in data["outputs"]
            ),
            values=tuple(Value(_spec(item["spec"]), item["differentiable"]) for item in data["values"]),
            mutated=tuple(data["mutated"]),
            assigned=tuple((target, value) for target, value in data["assigned"]),
            saved=tuple(Saved(**item) for item in data["saved"]),
            gradients=tuple(data["gradients"]),
            has_backward=data["has_backward"],
            seed_device=data["seed_device"],
        )


def _spec(item: dict[str, Any]) -> TensorSpec:
    return TensorSpec(**{**item, "size": tuple(item["size"]), "stride": tuple(item["stride"])})
