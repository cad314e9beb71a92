"""Convolutions of each channel alone, as a loop of ours: lanes are channels, and the window is written out.

Such a convolution multiplies as few numbers as it reads, so a library's call takes longer than what it computes, and
what it reads and what reads it are further passes over memory: these are fused here. Its image has the channel
innermost, as for a convolution with a weight in the library's order (`convolution.py`), and the weight has it too:
`passes/convolutions.py` lays those so that depend on parameters alone. A border is a mask around loads, none of which
happens outside of the image, nor meets a weight there.
Neighbours: `convolution.py` calls `lower`, and has a library's ways; docs/freezing.md has what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.value import Indices, LazyTensor, Spec, compute_dtype, pointwise
from stator.sizes import Extent, hint
from stator.sizes.strides import Shape, same_layout


class Window(NamedTuple):
    """How it moves over an image: for each of two dims."""

    size: Shape
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]


def lower(context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: Any, window: Window) -> LazyTensor:
    """The sum of products over the window, in float32, rounded once."""
    rows, columns = map(hint, window.size)
    wide, factors = compute_dtype(out.dtype), _channels_innermost(context, weight)

    def body(at: Indices) -> Expr:
        batch, channel, row, column = at
        total = e.const(0.0, wide) if bias is None else e.cast(bias.load((channel,)), wide)
        for i in range(rows):
            down, above = _position(window, 0, row, i, x.size[2])
            for j in range(columns):
                across, beside = _position(window, 1, column, j, x.size[3])
                pixel = e.cast(x.load((batch, channel, down, across)), wide)
                factor = e.cast(factors.load((channel, ZERO, Index.of(i), Index.of(j))), wide)
                total = _where(above + beside, e.op("fma", pixel, factor, total), total)
        return e.cast(total, out.dtype)

    return pointwise(out.size, out.dtype, body, 1)


def _position(window: Window, d: int, at: Index, tap: int, size: Extent) -> tuple[Index, list[Expr]]:
    """Where the window reads in a dim, and what says that this is inside of the image."""
    position = at * window.stride[d] + (tap * window.dilation[d] - window.padding[d])
    low, high = e.index(Index.of(0)), e.index(Index.of(size))
    return position, [e.op("ge", e.index(position), low), e.op("lt", e.index(position), high)]


def _where(conditions: list[Expr], value: Expr, other: Expr) -> Expr:
    """The value, and the other one where not all hold."""
    mask = e.const(True, "bool")
    for condition in conditions:
        mask = e.op("and", mask, condition)
    return e.masked(mask, value, other)


def _channels_innermost(context: Context, weight: LazyTensor) -> LazyTensor:
    """The weight in float32, one place in the window after the other; a copy where it does not lie so."""
    channels, _, _, columns = weight.size
    stride, wide = (1, 1, columns * channels, channels), compute_dtype(weight.dtype)
    if weight.dtype == wide and same_layout(weight.size, context.place(weight).stride, stride):
        return weight
    made = pointwise(weight.size, wide, lambda at: e.cast(weight.load(at), wide), weight.weight + 1)
    made.stride = stride
    context.realize(made)
    return made
