"""`Metadata`: all that the runtime must know about a traced function, as plain data.

Invariant: numbers, strings, booleans, sizes and tuples only, so it can be written to disk (`to_json`, `from_json`).
Flat inputs are numbered: lifted attributes, then the caller's tensors and numbers, then the memory that some of them
share, then floats that are computed from them, then the seeds where there are any.
Extents are ints, or sizes over the symbols that `symbols` says where to read.
Neighbours: `trace.py` and `partition.py` fill it; `runtime.py` acts on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from stator.fake.symbolic import extents
from stator.sizes import Condition, Extent, Size, Symbol, dump, evaluate, load

Ints = tuple[int, ...]
Extents = tuple[Extent, ...]
Values = Mapping[Symbol, int]


def at(extents: Extents, values: Values) -> Ints:
    """Extents for values of their symbols."""
    return tuple([extent if isinstance(extent, int) else evaluate(extent, values) for extent in extents])


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Geometry of one tensor; dtype and device in torch's names ("float32", "cuda:0")."""

    size: Extents
    stride: Extents
    dtype: str
    device: str
    requires_grad: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor, requires_grad: bool | None = None) -> TensorSpec:
        """The spec of a tensor, real or fake."""
        return cls(
            extents(tensor.shape),
            extents(tensor.stride()),
            str(tensor.dtype).removeprefix("torch."),
            str(tensor.device),
            tensor.requires_grad if requires_grad is None else requires_grad,
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a symbol is read: from a flat input that is a "number", or its "size", "stride", "offset"."""

    symbol: Symbol
    input: int
    kind: str
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """How one result of the function is made.

    kind "value": the forward graph's output number `index`;
         "input": flat input number `index` itself;
         "input_view": flat input number `index` as_strided by `size`, `stride`, `offset`;
         "output_view": the value number `index` as_strided by them;
         (views may have another `dtype`, of the same width or of the parts of complex numbers, in which the offset
         then counts; `pending` names what is put off, "conj" and "neg"; `link` says how they hang on their source in
         autograd, "older" ahead of it that they do so since before a write; `version` is how often what has a counter
         of its own, as `.data` has, was written to)
         "root": the root number `index` itself;
         "root_view": the root number `index` as_strided by them;
         "whole": what flat input number `index` is a view of;
         "number": the number `offset`;
         "constant": no tensor, the Python value `constant`.
    """

    kind: str
    index: int = 0
    size: Extents = ()
    stride: Extents = ()
    offset: Extent = 0
    constant: Any = None
    dtype: str = ""
    link: str = ""
    pending: str = ""
    version: int = 0

    def at(self, values: Values) -> Output:
        """The output for values of its symbols."""
        offset = at((self.offset,), values)[0]
        return replace(self, size=at(self.size, values), stride=at(self.stride, values), offset=offset)


@dataclass(frozen=True, slots=True)
class Value:
    """One user value that the forward graph computes; differentiable ones have a tangent.

    `version` is how often the program has written to it.
    """

    spec: TensorSpec
    differentiable: bool
    version: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """One tensor kept for backward: an "input", a user "value", or an "extra" output of the forward graph.

    `needed` are the values whose gradients read it.
    """

    source: str
    index: int
    needed: Ints = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What backward looks at: whether an "input" or "value" was written to, where one of `values` is differentiated."""

    source: str
    index: int
    values: Ints


@dataclass(frozen=True, slots=True)
class Memory:
    """What a training step is predicted to take, in bytes besides parameters, inputs and what was there before.

    `forward` and `backward` are the most at once while the one or the other runs, `peak` the larger of the two; the
    `arena` of intermediates is part of both, and `saved` is what is kept in between. With symbolic sizes, for the sizes
    of the call that was compiled. Results of the prologue are `kept` between calls, beside all of that. What operators
    of libraries take for themselves while they run is not known, and not in it.
    """

    peak: int = 0
    forward: int = 0
    backward: int = 0
    saved: int = 0
    arena: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight in the order of a library: a view of input or result number `source` of the prologue, in which inputs
    come first, as an operator of the library makes it, by what else it is given.
    """

    source: int
    size: Ints
    stride: Ints
    offset: int
    library: str  # the namespace of the operator
    operator: str
    args: tuple[int | Ints, ...]


@dataclass(frozen=True, slots=True)
class Frozen:
    """What the forward graph is given beside its inputs: the first `results` of the prologue, then what is packed.

    `inputs` are the flat inputs of the prologue.
    """

    inputs: Ints = ()
    results: int = 0
    packed: tuple[Packed, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """The forward graph gives `(*values, *extra saved)`, the backward graph takes
    `(*saved, *tangents, *flags, *symbols)`.
    """

    #: A spec for each tensor, an extent for each number.
    inputs: tuple[TensorSpec | Extent, ...]
    attributes: int
    outputs: tuple[Output, ...]
    values: tuple[Value, ...]
    #: What several results are views of in autograd that is itself a view of nothing there, though it lies in an input
    #: or in a value (`detach`, `view(dtype)`).
    roots: tuple[Output, ...] = ()
    #: Flat inputs that the forward graph writes to.
    mutated: Ints = ()
    #: (flat input, by how much its version counter rises): writes through `.data` do not count, nor do kernels that do
    #: not tell autograd; what the runtime writes itself is not in the number, because it counts anyway.
    writes: tuple[tuple[int, int], ...] = ()
    #: (flat input, value): what the runtime copies into inputs that autograd must see written.
    assigned: tuple[tuple[int, int], ...] = ()
    #: Flat inputs that have another geometry after a call, as views of what they were.
    restrided: tuple[Output, ...] = ()
    saved: tuple[Saved, ...] = ()
    #: What eager saves of the caller's tensors, beside those that are saved here and every gradient reads.
    looks: tuple[Look, ...] = ()
    #: (value, values that cannot be differentiated any more once it was, unless the graph is retained).
    fates: tuple[tuple[int, Ints], ...] = ()
    #: Flat inputs that get a gradient; the backward graph gives one value or None for each flat input.
    gradients: Ints = ()
    has_backward: bool = False
    #: (flat input, values) for inputs on which only some differentiable values depend: only these give it a gradient.
    reach: tuple[tuple[int, Ints], ...] = ()
    #: (value, others) for differentiable values from which others are computed: the gradient that comes for the value
    #: lacks what flows through the others, so its hooks would see too little.
    inner: tuple[tuple[int, Ints], ...] = ()
    #: Groups of values of which backward must know whether any tangent is given; zeros in its place are not enough.
    flags: tuple[Ints, ...] = ()
    #: (device type, dtype) of autocast under which the backward graph is right too, beside that of no autocast.
    casts: tuple[tuple[str, str], ...] = ()
    #: Whether the program turns gradients on by itself, called where they are off.
    enables_grad: bool = False
    #: Device of the seeds, which are then the last flat input ("" where no random numbers are used).
    seed_device: str = ""
    #: Devices from whose generators a call takes numbers, the seeds among them.
    generators: tuple[str, ...] = ()
    #: Kinds of effects of the forward graph (`fake/effects.py`).
    effects: tuple[str, ...] = ()
    #: Where the symbols are read; their values, in this order, are the last inputs of the backward graph.
    symbols: tuple[Origin, ...] = ()
    #: Flat inputs that are floats; the graphs take their bits as an int64.
    floats: Ints = ()
    #: Flat inputs after the caller's: tensors that these are views of, then memory that several share, cut from one.
    bases: tuple[Output, ...] = ()
    #: Expressions by which Python computes further floats from the symbols; they are flat inputs too, as bits.
    reals: tuple[str, ...] = ()
    #: What was decided about symbols while compiling: the compiled graphs are right where all of it holds.
    conditions: tuple[Condition, ...] = ()
    #: What a call takes.
    memory: Memory = Memory()
    #: What is computed of parameters alone.
    frozen: Frozen = Frozen()

    @property
    def uses_random(self) -> bool:
        """Whether the last flat input is the seeds."""
        return bool(self.seed_device)

    @property
    def draws(self) -> int:
        """How many seeds a call needs: one for every draw of random numbers."""
        seeds = self.inputs[-1] if self.uses_random else None
        return int(seeds.size[0]) if isinstance(seeds, TensorSpec) else 0

    @property
    def overwritten(self) -> Ints:
        """Flat inputs that hold something else after a call."""
        return (*self.mutated, *(target for target, _ in self.assigned), *(output.index for output in self.restrided))

    @property
    def differentiable(self) -> Ints:
        """The values that have tangents."""
        return tuple([i for i, value in enumerate(self.values) if value.differentiable])

    @property
    def one_fate(self) -> bool:
        """Whether to differentiate any value is to let go of what all of them need."""
        values, fates = self.differentiable, dict(self.fates)
        return all(set(fates.get(i, ())) == set(values) for i in values)

    @property
    def tangents(self) -> tuple[TensorSpec, ...]:
        """What the tangents that the backward graph takes look like, in order."""
        return tuple(value.spec for value in self.values if value.differentiable)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(_plain(self))

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """From the text of `to_json`."""
        data = json.loads(text)
        return cls(
            inputs=tuple(_spec(item) if isinstance(item, dict) else load(item) for item in data["inputs"]),
            attributes=data["attributes"],
            outputs=tuple(Output(**_geometry(item, offset=load(item["offset"]))) for item in data["outputs"]),
            roots=tuple(Output(**_geometry(item, offset=load(item["offset"]))) for item in data["roots"]),
            values=tuple(Value(**{**item, "spec": _spec(item["spec"])}) for item in data["values"]),
            mutated=tuple(data["mutated"]),
            writes=tuple((target, count) for target, count in data["writes"]),
            assigned=tuple((target, value) for target, value in data["assigned"]),
            restrided=tuple(Output(**_geometry(item, offset=load(item["offset"]))) for item in data["restrided"]),
            saved=tuple(Saved(**{**item, "needed": tuple(item["needed"])}) for item in data["saved"]),
            looks=tuple(Look(**{**item, "values": tuple(item["values"])}) for item in data["looks"]),
            fates=tuple((value, tuple(others)) for value, others in data["fates"]),
            gradients=tuple(data["gradients"]),
            has_backward=data["has_backward"],
            reach=tuple((target, tuple(values)) for target, values in data["reach"]),
            inner=tuple((value, tuple(others)) for value, others in data["inner"]),
            flags=tuple([tuple(group) for group in data["flags"]]),
            casts=tuple((kind, dtype) for kind, dtype in data["casts"]),
            enables_grad=data["enables_grad"],
            seed_device=data["seed_device"],
            generators=tuple(data["generators"]),
            effects=tuple(data["effects"]),
            floats=tuple(data["floats"]),
            bases=tuple(Output(**_geometry(item, offset=load(item["offset"]))) for item in data["bases"]),
            reals=tuple(data["reals"]),
            symbols=tuple(Origin(**{**item, "symbol": _symbol(item["symbol"])}) for item in data["symbols"]),
            conditions=tuple(Condition(op, load(left), load(right)) for op, left, right in data["conditions"]),
            memory=Memory(**data["memory"]),
            frozen=_frozen(data["frozen"]),
        )


def _plain(value: Any) -> Any:
    """As what JSON has."""
    match value:
        case Size():
            return dump(value)
        case Symbol():
            return dump(value.size)
        case tuple() | list():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _geometry(item: dict[str, Any], **others: Any) -> dict[str, Any]:
    sizes = {name: tuple([load(extent) for extent in item[name]]) for name in ("size", "stride")}
    return {**item, **sizes, **others}


def _spec(item: dict[str, Any]) -> TensorSpec:
    return TensorSpec(**_geometry(item))


def _frozen(data: dict[str, Any]) -> Frozen:
    packed = tuple([Packed(**_geometry(item, args=_nested(item["args"]))) for item in data["packed"]])
    return Frozen(tuple(data["inputs"]), data["results"], packed)


def _nested(data: Any) -> Any:
    return tuple([_nested(item) for item in data]) if isinstance(data, list) else data


def _symbol(data: Any) -> Symbol:
    size = load(data)
    assert isinstance(size, Size)
    return next(iter(size.symbols))
