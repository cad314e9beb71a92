"""Convolutions of each channel alone, as a loop of ours: lanes are channels, and the window is written out.

Such a convolution multiplies as few numbers as it reads, so a library's call takes longer than what it computes, and
what it reads and what reads it are further passes over memory: these are fused here. Its image has the channel
innermost, as for a convolution with a weight in the library's order (`convolution.py`), and the weight has it too:
`passes/convolutions.py` lays those so that depend on parameters alone. A border is a mask around loads, none of which
happens outside of the image, nor meets a weight there.
On a GPU the image has the channel innermost where `passes/images.py` or the program has laid it so, and gradients are
computed as well. A border's zeros meet the weight there, as in cuDNN, which leaves out a choice for each product.
Neighbours: `convolution.py` calls `lower`, and has a library's ways; docs/freezing.md has what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


#: From a window, a dim, an index, a tap and the size of an image to a place in it, and what says that it is inside.
Placed = Callable[[Window, int, Index, int, Extent], tuple[Index, list[Expr]]]


def lower(context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: Any, window: Window) -> LazyTensor:
    """The sum of products over the window, in float32, rounded once."""
    return _summed(context, out, x, weight, bias, window, _position)


def image_gradient(context: Context, out: Spec, gradient: LazyTensor, weight: LazyTensor, window: Window) -> LazyTensor:
    """Of each pixel, over the windows that have it."""
    return _summed(context, out, gradient, weight, None, window, _window_with)


def weight_gradient(context: Context, out: Spec, gradient: LazyTensor, x: LazyTensor, window: Window) -> LazyTensor:
    """Sums over all pixels in float32, rounded once.

    A nest has a column of the window, or a row if these are fewer: one kernel computes them all, reads a gradient once
    for a line across them, and finds most pixels in the cache that the nest before has read. One nest of all places
    would read it for each.
    """
    d = int(hint(window.size[1]) <= hint(window.size[0]))
    lines = [_line(context, out, gradient, x, window, d, tap) for tap in range(hint(window.size[d]))]

    def body(at: Indices) -> Expr:
        channel, across = at[0], at[3 - d]
        value, *rest = [line.load((across, channel)) for line in lines]
        for tap, other in enumerate(rest, 1):
            value = e.masked(e.op("eq", e.index(at[2 + d]), e.index(Index.of(tap))), other, value)
        return e.cast(value, out.dtype)

    made = pointwise(out.size, out.dtype, body, len(lines))
    made.stride = out.stride
    return made


def _line(
    context: Context, out: Spec, gradient: LazyTensor, x: LazyTensor, window: Window, d: int, tap: int
) -> LazyTensor:
    """The sums at a tap of a dim: [taps of the other dim, channels]."""
    channels, wide, (batch, _, height, width) = out.size[0], compute_dtype(out.dtype), gradient.size

    def product(at: Indices) -> Expr:
        across, channel, image, *place = at
        (down, above), (beside, inside) = (
            _position(window, k, place[k], tap if k == d else across, x.size[2 + k]) for k in range(2)
        )
        pixel = e.cast(x.load((image, channel, down, beside)), wide)
        factor = e.cast(gradient.load((image, channel, *place)), wide)
        return e.reduce("sum", e.op("mul", factor, _where(above + inside, pixel, e.const(0.0, wide))))

    return context.reduce((out.size[3 - d], channels, batch, height, width), [2, 3, 4], wide, product, False)


def _summed(
    context: Context, out: Spec, image: LazyTensor, weight: LazyTensor, bias: Any, window: Window, place: Placed
) -> LazyTensor:
    """Over the window, of what is at a `place` of the image and a factor of the weight."""
    rows, columns = map(hint, window.size)
    wide, factors = compute_dtype(out.dtype), _channels_innermost(context, weight)

    def body(at: Indices) -> Expr:
        batch, channel, row, column = at
        total = e.const(0.0, wide) if bias is None else e.cast(bias.load((channel,)), wide)
        for i in range(rows):
            down, above = place(window, 0, row, i, image.size[2])
            for j in range(columns):
                across, beside = place(window, 1, column, j, image.size[3])
                pixel = e.cast(image.load((batch, channel, down, across)), wide)
                factor = e.cast(factors.load((channel, ZERO, Index.of(i), Index.of(j))), wide)
                if context.device.host:
                    total = _where(above + beside, e.op("fma", pixel, factor, total), total)
                else:
                    total = e.op("fma", _where(above + beside, pixel, e.const(0.0, wide)), factor, total)
        return e.cast(total, out.dtype)

    return pointwise(out.size, out.dtype, body, 1)


def _position(window: Window, d: int, at: Index, tap: int | Index, size: Extent) -> tuple[Index, list[Expr]]:
    """Where the window reads in a dim, and what says that this is inside of the image."""
    position = at * window.stride[d] + tap * window.dilation[d] - window.padding[d]
    return position, _inside(position, size)


def _window_with(window: Window, d: int, at: Index, tap: int, size: Extent) -> tuple[Index, list[Expr]]:
    """Which window reads a pixel at a tap, in a dim, and what says that there is one."""
    step, turned = window.stride[d], at + (window.padding[d] - tap * window.dilation[d])
    if step == 1:
        return turned, _inside(turned, size)
    steps = -(-tap * window.dilation[d] // step)  # so many more, and no quotient is of a negative number
    position = (turned + steps * step) // step - steps
    whole = e.op("eq", e.index((turned + steps * step) % step), e.index(ZERO))
    return position, [whole, *_inside(position, size)]


def _inside(position: Index, size: Extent) -> list[Expr]:
    low, high = e.index(ZERO), e.index(Index.of(size))
    return [e.op("ge", e.index(position), low), e.op("lt", e.index(position), high)]


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
