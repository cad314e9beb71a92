"""The user's results and the tangents of one call, from the metadata: views, sizes by the call's own numbers.

Of a function with symbolic sizes, what describes results and tangents is computed once for each combination of sizes.
Invariant: a result hangs on its source as in eager (`LINKS`), with eager's dtype, geometry and lazy bits (`PENDING`).
Neighbours: `metadata.Output` is the description; `runtime.py` calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from stator._native import Outputs
from stator.aot.metadata import Ints, Metadata, Origin, Output, TensorSpec, Value, Values, at
from stator.aot.zeros import zeros
from stator.graphs.lineage import set_versions
from stator.sizes import Extent, Symbol, symbols

Tensor = torch.Tensor

#: The `LINKS` of views that C makes.
_LINKED = ("", "unrecorded")
#: The kinds of results that it does not make.
_UNKNOWN = ("whole", "root", "root_view")
#: What the link of a view begins with that is older than a write.
OLDER: Final = "older "


@dataclass(frozen=True, slots=True)
class Geometry:
    """Results, their roots, inputs that are given another geometry, and tangents, all with numbers for sizes."""

    outputs: tuple[Output, ...]
    roots: tuple[Output, ...]
    restrided: tuple[Output, ...]
    tangents: list[tuple[int, Tangent]]


def geometry_of(metadata: Metadata, places: tuple[Origin, ...], numbers: Ints) -> Geometry:
    """What the metadata describes, where the symbols of `places` have the values `numbers`."""
    values = {origin.symbol: value for origin, value in zip(places, numbers, strict=True)}
    outputs, roots = (tuple([output.at(values) for output in made]) for made in (metadata.outputs, metadata.roots))
    tangents = [(i, Tangent(value.spec, values)) for i, value in enumerate(metadata.values) if value.differentiable]
    restrided = tuple([output.at(values) for output in metadata.restrided])
    return Geometry(outputs, roots, restrided, tangents)


def sized(metadata: Metadata) -> tuple[Origin, ...]:
    """Where the symbols are read that the geometry of results and tangents depends on."""
    extents: list[Extent] = []
    views = [*metadata.outputs, *metadata.roots, *metadata.restrided]
    parts: list[Output | TensorSpec] = [*views, *metadata.tangents]
    for part in parts:
        extents += (*part.size, *part.stride)
    extents += [output.offset for output in views]
    used = frozenset[Symbol]().union(*map(symbols, extents))
    return tuple([place for place in metadata.symbols if place.symbol in used])


class Tangent:
    """What the backward graph expects of one tangent."""

    __slots__ = ("device", "dtype", "size", "stride")

    def __init__(self, spec: TensorSpec, values: Values) -> None:
        self.size = at(spec.size, values)
        self.stride = at(spec.stride, values)
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self.device = torch.device(spec.device)

    @property
    def geometry(self) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
        """Size, strides and dtype."""
        return self.size, self.stride, self.dtype

    def fit(self, tangent: Tensor | None) -> Tensor:
        """The tangent in the expected form; zeros where none is given."""
        if tangent is not None and tangent.layout is not torch.strided:
            tangent = tangent.to_dense()
        if (
            tangent is not None
            and tangent.stride() == self.stride
            and tangent.dtype is self.dtype
            and not (tangent._is_zerotensor() or tangent.is_neg() or tangent.is_conj())
        ):
            return tangent
        if tangent is None:
            return zeros(self.size, self.stride, self.dtype, self.device)
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device).copy_(tangent)


def outputs_of(outputs: Sequence[Output]) -> Outputs | None:
    """What makes these results in C: of known geometry, and views that hang on their source as nothing but views."""
    items = []
    for output in outputs:
        if output.dtype or output.pending or output.link not in _LINKED or output.kind in _UNKNOWN:
            return None
        size: Any = output.size  # numbers by now
        stride: Any = output.stride
        offset: Any = output.offset
        if output.kind == "number":
            items.append(("constant", 0, (), (), 0, False, offset))
        else:
            unrecorded = output.link == "unrecorded"
            items.append((output.kind, output.index, size, stride, offset, unrecorded, output.constant))
    return Outputs(tuple(items))


def aging(values: Sequence[Value]) -> Callable[[tuple[Any, ...]], None] | None:
    """What gives values the versions that they have in eager, where the program has written to some of them."""
    written = {i: value.version for i, value in enumerate(values) if value.version}

    def age(values: tuple[Any, ...]) -> None:
        set_versions([(values[i], version) for i, version in written.items()])

    return age if written else None


def results(geometry: Geometry, inputs: list[Tensor], values: Sequence[Any]) -> tuple[Any, ...]:
    """All results for the caller."""
    roots = [result(output, inputs, values) for output in geometry.roots]
    return tuple([result(output, inputs, values, roots) for output in geometry.outputs])


def result(output: Output, inputs: list[Tensor], values: Sequence[Any], roots: Sequence[Tensor] = ()) -> Any:
    """One result for the caller, from the inputs of the call and the values that the forward graph computed."""
    match output.kind:
        case "value":
            return values[output.index]
        case "input":
            return inputs[output.index]
        case "root":
            return roots[output.index]
        case "input_view":
            return view(output, inputs[output.index])
        case "output_view":
            return view(output, values[output.index])
        case "root_view":
            return view(output, roots[output.index])
        case "whole":
            return inputs[output.index]._base
        case "number":
            return output.offset
        case _:
            return output.constant


def view(output: Output, source: Tensor) -> Tensor:
    """The view of `source` that the output describes."""
    size: Any = output.size  # numbers by now
    stride: Any = output.stride
    offset: Any = output.offset
    dtype = getattr(torch, output.dtype) if output.dtype else None

    def cut(source: Tensor) -> Tensor:
        if dtype is not None and dtype.is_complex != source.dtype.is_complex and _is_part(dtype, source.dtype):
            made = _in_parts(source, size, stride, offset)
        else:
            source = source if dtype is None else _seen_as(source, dtype)
            made = source.as_strided(size, stride, source.storage_offset() + offset)
        for put_off in output.pending.split():
            made = PENDING[put_off](made)
        return made

    link = output.link.removeprefix(OLDER)
    if link == output.link or source.is_inference():
        made = LINKS[link](source, cut)
    else:
        made = _before_writes(source, lambda source: LINKS[link](source, cut))
    if output.version:
        set_versions([(made, output.version)])
    return made


#: The links of what has a version counter of its own.
UNCOUNTED: Final = ("data", "view of data")

#: A version that no tensor comes to.
_NEVER = 1 << 30


def _before_writes(source: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """A view that autograd takes to be older than a write: its history is to be made anew from that of its base."""
    now = source._version
    set_versions([(source, now + _NEVER)])
    try:
        return make(source)
    finally:
        set_versions([(source, now)])


def _is_part(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether one is complex, of parts of the other; else bits of one are read as the other."""
    return dtype.to_real() is other or other.to_real() is dtype


def _seen_as(source: Tensor, dtype: torch.dtype) -> Tensor:
    """Its memory as elements of another dtype; of another size where it has no gaps, as many as are whole."""
    if dtype.itemsize != source.itemsize:
        source = source.view(-1)
        source = source[: source.numel() - source.numel() % max(dtype.itemsize // source.itemsize, 1)]
    return source.view(dtype)


def _in_parts(source: Tensor, size: Any, stride: Any, offset: Any) -> Tensor:
    """A view of the parts of complex numbers, or of numbers as parts of complex ones; the offset counts parts."""
    if source.is_complex():
        source = torch.view_as_real(source)
        return source.as_strided(size, stride, source.storage_offset() + offset)
    pairs = source.as_strided((*size, 2), (*[2 * step for step in stride], 1), source.storage_offset() + offset)
    return torch.view_as_complex(pairs)


#: Lazy conjugation and negation: PyTorch sets a bit, and computes when the tensor is read.
PENDING: dict[str, Callable[[Tensor], Tensor]] = {"conj": torch.conj, "neg": torch._neg_view}


def _without_grad(source: Tensor, cut: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.no_grad():
        return cut(source)


#: How a view hangs on its source: (source, what cuts the view from it) → view.
LINKS: dict[str, Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]] = {
    "": lambda source, cut: cut(source),
    # Of the source without its history, which autograd may refuse to say.
    "detached": lambda source, cut: cut(source.detach()).detach(),
    "view of detached": lambda source, cut: cut(source.detach()),
    "data": lambda source, cut: cut(source.data).data,
    "view of data": lambda source, cut: cut(source.data),
    # Made under no_grad: it says that it requires gradients, and has no history.
    "unrecorded": _without_grad,
    # Made together with others: autograd forbids writing to it.
    "sibling": lambda source, cut: cut(source.unsqueeze(0).unbind()[0]),
}
