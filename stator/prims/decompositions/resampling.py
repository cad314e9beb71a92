"""Upsampling in all modes: every output position of a dim reads a few positions, with weights.

A `Dim` is that rule for one of them: nearest has one tap, linear two, cubic four. Positions and weights are computed in
the type that eager computes them in, float32 unless the numbers are float64. The gradient is a lookup as well: an input
position sums the outputs that read it, which lie in a range that grows by a fixed ratio from one to the next.
Neighbour: `windows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import along, iota, laid_out, packed, suggested
from stator.prims.dtypes import cast, compute_type, held
from stator.prims.fma import FMA
from stator.prims.table import decompose

#: The constant of the cubic convolution.
SHARPNESS = -0.75
#: Positions in fixed point have so many binary places.
PLACES = 20


class Dim(NamedTuple):
    """One dim that is resampled: so many positions to so many, `ratio` inputs to one output."""

    extent: int
    result: int
    ratio: float
    shift: float  #: what is added to an output position before it is scaled, and taken off after
    kind: str  #: nearest, linear or cubic

    @property
    def same(self) -> bool:
        """Whether the elements stay as they are."""
        return type(self.extent) is int and self.extent == self.result and self.ratio == 1 and self.kind != "cubic"

    @property
    def factor(self) -> int | None:
        """How often each element is repeated, where a dim is that simple."""
        extent, result = self.extent, self.result
        if self.kind != "nearest" or type(extent) is not int or type(result) is not int or result % extent:
            return None
        factor = result // extent
        return factor if self.sources() == [i // factor for i in range(result)] else None

    def place(self, i: int) -> float:
        """Where an output position lies among the inputs, in float32."""
        place = held(self.ratio, torch.float32) * (i + self.shift)  # exact
        if self.kind == "nearest":
            return held(place, torch.float32)
        place = held(place - self.shift, torch.float32)
        return place if self.kind == "cubic" else max(place, 0.0)

    def sources(self) -> list[int]:
        """The position below each output position."""
        if self.same:
            return list(range(self.extent))
        return [min(math.floor(self.place(i)), self.extent - 1) for i in range(self.result)]


def _nearest(extent: int, result: int, scale: float | None, exact: bool, whole: bool) -> Dim:
    """`whole`: whether eager counts elements, whatever the scale, where they are kept or doubled."""
    if whole and type(extent) is int and result in (extent, 2 * extent):
        scale = None
    return Dim(extent, result, _ratio(extent, result, scale), 0.5 if exact else 0.0, "nearest")


def _interpolated(extent: int, result: int, scale: float | None, align: bool, kind: str, on_cpu: bool) -> Dim:
    if align:
        return Dim(extent, result, (extent - 1) / (result - 1) if result > 1 else 0.0, 0.0, kind)
    if on_cpu and kind == "linear" and type(extent) is int and extent == result:
        scale = None
    return Dim(extent, result, _ratio(extent, result, scale), 0.5, kind)


def _ratio(extent: int, result: int, scale: float | None) -> float:
    return 1.0 / scale if scale is not None and scale > 0 else extent / result


# -- taps ------------------------------------------------------------------------------------------


def _taps(dim: Dim, number: Tensor, dtype: torch.dtype) -> list[tuple[Tensor, Tensor | None]]:
    """The (position, weight) pairs of output positions; the weight None is 1."""
    last = dim.extent - 1
    wide = torch.float32 if dim.kind == "nearest" else dtype
    place = p.to_copy(number, dtype=wide)
    if dim.shift:
        place = p.add(place, dim.shift)
    if dim.kind == "nearest":
        place = p.mul(place, dim.ratio)
        return [(p.clamp(p.to_copy(p.floor(place), dtype=torch.int64), 0, last), None)]
    if dim.shift:  # eager's kernels join product and difference, so that a place may be just beside an input
        ratio, shift = (p.full([], value, dtype=wide, device=place.device) for value in (dim.ratio, -dim.shift))
        place = FMA(place, ratio, shift)
    else:
        place = p.mul(place, dim.ratio)
    if dim.kind == "linear":
        place = p.clamp(place, 0.0)
    single = cast(place, torch.float32) if place.device.type == "cpu" else place  # eager's is C's floorf
    low = p.clamp(p.to_copy(p.floor(single), dtype=torch.int64), None, last)
    part = p.clamp(p.sub(place, p.to_copy(low, dtype=dtype)), 0.0, 1.0)
    if dim.kind == "linear":
        return [(low, p.sub(1.0, part)), (p.clamp(p.add(low, 1), None, last), part)]
    return [(p.clamp(p.add(low, k - 1), 0, last), weight) for k, weight in enumerate(_cubic_weights(part))]


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Of the four neighbours of a place that is `t` after the second of them."""

    def near(x: Tensor) -> Tensor:
        inner = p.sub(p.mul(x, SHARPNESS + 2), SHARPNESS + 3)
        return p.add(p.mul(p.mul(inner, x), x), 1)

    def far(x: Tensor) -> Tensor:
        inner = p.add(p.mul(p.sub(p.mul(x, SHARPNESS), 5 * SHARPNESS), x), 8 * SHARPNESS)
        return p.sub(p.mul(inner, x), 4 * SHARPNESS)

    rest = p.sub(1.0, t)
    return [far(p.add(t, 1)), near(t), near(rest), far(p.add(rest, 1))]


# -- forward ---------------------------------------------------------------------------------------


def _resampled(x: Tensor, dims: Sequence[Dim]) -> Tensor:
    """All taps of all dims at once, so that nothing lies in memory between the dims."""
    choices = []
    for d, dim in enumerate(dims):
        number = iota(dim.result, x.device)
        taps = [(number, None)] if dim.same else _taps(dim, number, compute_type(x.dtype))
        choices.append([(along(at, x, d + 2), _along(weight, x, d + 2)) for at, weight in taps])
    return _as_blended(_blend(x, choices, ()), dims)


def _as_blended(value: Tensor, dims: Sequence[Dim]) -> Tensor:
    """Along a dim that stays as it is eager blends on the CPU too, with weights 1 and 0, which infinities show."""
    blended = value.device.type == "cpu" and any(dim.same and dim.kind == "linear" for dim in dims)
    return p.add(value, p.mul(value, 0.0)) if blended else value


def _along(weight: Tensor | None, x: Tensor, dim: int) -> Tensor | None:
    return None if weight is None else along(weight, x, dim)


def _blend(x: Tensor, choices: Sequence[Sequence[tuple[Tensor, Tensor | None]]], chosen: tuple[Tensor, ...]) -> Tensor:
    """The weighted sum over the taps of the dims that are left, the last dim innermost."""
    if not choices:
        value = p.index(x, [None, None, *chosen])
        return cast(value, compute_type(x.dtype))
    terms = []
    for at, weight in choices[0]:
        value = _blend(x, choices[1:], (*chosen, at))
        terms.append(value if weight is None else p.mul(value, weight))
    return w.total(terms)


def _repeat(x: Tensor, factors: Sequence[int]) -> Tensor:
    """Each element so many times, dim by dim."""
    for d, factor in enumerate(factors, 2):
        if factor > 1:
            size = [*x.shape[: d + 1], factor, *x.shape[d + 1 :]]
            spread = packed(p.expand(p.unsqueeze(x, d + 1), size))
            x = p.view(spread, [*x.shape[:d], x.shape[d] * factor, *x.shape[d + 1 :]])
    return x


def _upsample(x: Tensor, dims: Sequence[Dim]) -> Tensor:
    factors = [dim.factor for dim in dims]
    if all(factor is not None for factor in factors):
        return laid_out(_repeat(x, [factor for factor in factors if factor is not None]), x)
    if dims[0].kind != "nearest" and not x.dtype.is_floating_point:
        return NotImplemented
    return laid_out(cast(_resampled(x, dims), x.dtype), x)


# -- backward --------------------------------------------------------------------------------------


class Range(NamedTuple):
    """The outputs that may read input j: `length` of them from (j * slope + offset) >> PLACES on."""

    slope: int
    offset: int
    length: int


def _readers(dim: Dim) -> Range:
    """A range that holds all outputs that read an input, as short as one ratio for all allows."""
    before, after = (1, 2) if dim.kind == "cubic" else (0, 1) if dim.kind == "linear" else (0, 0)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, low in enumerate(dim.sources()):
        for j in {min(max(low + k, 0), dim.extent - 1) for k in range(-before, after + 1)}:
            first.setdefault(j, i)
            last[j] = i
    slope = round((1 << PLACES) / dim.ratio) if dim.ratio else 0
    offset = min((i << PLACES) + (1 << PLACES) - 1 - j * slope for j, i in first.items())
    length = max(i - ((j * slope + offset) >> PLACES) + 1 for j, i in last.items())
    return Range(slope, offset, length)


def _spread_back(grad: Tensor, d: int, dim: Dim) -> Tensor:
    """The gradient of resampling one dim."""
    if dim.same:
        return grad
    readers = _readers(dim)
    number = iota(dim.extent, grad.device)
    start = p.div_mode(p.add(p.mul(number, readers.slope), readers.offset), 1 << PLACES, rounding_mode="floor")
    outputs = p.add(p.unsqueeze(iota(readers.length, grad.device), 1), start)
    inside = p.logical_and(p.ge(outputs, 0), p.lt(outputs, dim.result))
    taps = _taps(dim, outputs, grad.dtype)
    weights = [(p.logical_and(p.eq(at, number), inside), weight) for at, weight in taps]
    return w.gathered(grad, d, p.clamp(outputs, 0, dim.result - 1), weights)


def _upsample_backward(grad: Tensor, dims: Sequence[Dim]) -> Tensor:
    if any(type(n) is not int for dim in dims for n in dim[:2]):
        return NotImplemented
    if all(dim.kind == "cubic" and dim.extent == dim.result for dim in dims):
        return laid_out(p.clone(grad), grad)  # as eager does, whatever the scale
    value = cast(grad, compute_type(grad.dtype))
    for d, dim in reversed(list(enumerate(dims, 2))):
        factor = dim.factor
        if factor is None:
            value = _spread_back(value, d, dim)
        elif factor > 1:
            value = w.window_sums(value, [(d, factor, factor)])
    return laid_out(cast(_as_blended(w.from_zero(value), dims), grad.dtype), grad)


# -- the overloads ---------------------------------------------------------------------------------

Make = Callable[..., Dim]


def _dims(
    make: Make, extents: Sequence[int], size: Sequence[int], scales: Sequence[float | None], *how: object
) -> list[Dim]:
    factors = list(scales) or [None] * len(size)
    return [make(*one, *how) for one in zip(extents, size, factors, strict=True)]


def _register_nearest(name: str, exact: bool) -> None:
    @decompose(name)
    def forward(x: Tensor, size: Sequence[int], *scales: float | None) -> Tensor:
        counts = len(size) == 2 or suggested(x) is not torch.contiguous_format
        whole = counts and not exact and x.device.type == "cpu"
        return _upsample(x, _dims(_nearest, x.shape[2:], size, scales, exact, whole))

    @decompose(f"{name}_backward")
    def backward(grad: Tensor, size: Sequence[int], input_size: Sequence[int], *scales: float | None) -> Tensor:
        whole = not exact and grad.device.type == "cpu"
        return _upsample_backward(grad, _dims(_nearest, input_size[2:], size, scales, exact, whole))


def _register_interpolated(name: str, kind: str) -> None:
    @decompose(name)
    def forward(x: Tensor, size: Sequence[int], align: bool, *scales: float | None) -> Tensor:
        on_cpu = x.device.type == "cpu"
        return _upsample(x, _dims(_interpolated, x.shape[2:], size, scales, align, kind, on_cpu))

    @decompose(f"{name}_backward")
    def backward(
        grad: Tensor, size: Sequence[int], input_size: Sequence[int], align: bool, *scales: float | None
    ) -> Tensor:
        on_cpu = grad.device.type == "cpu"
        return _upsample_backward(grad, _dims(_interpolated, input_size[2:], size, scales, align, kind, on_cpu))


for _rank in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_rank}d", False)
    _register_nearest(f"_upsample_nearest_exact{_rank}d", True)
for _name, _kind in (
    ("linear1d", "linear"),
    ("bilinear2d", "linear"),
    ("trilinear3d", "linear"),
    ("bicubic2d", "cubic"),
):
    _register_interpolated(f"upsample_{_name}", _kind)
