"""What convolutions take beside what they were traced with: images with the channel innermost.

On the CPU PyTorch's library convolves in an order of its own, into which it copies images that lie as eager has them,
and back; images with the channel innermost it takes as they are, but brings weights to them more slowly. So there is
gained by the elements of operand and result, and lost by those of the weight.
Neighbours: `loop/channels.py` decides by it, `fake/rules_layers.py` has the strides of results. docs/benchmarks.md has
what was measured.
"""

from __future__ import annotations

from math import prod

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.loop.demands import DEMANDS, Taken
from stator.loop.nest import Extern
from stator.sizes import hint
from stator.sizes.strides import Shape, contiguous, same_layout

#: What copying an element of an image costs, in bytes that kernels move meanwhile: where each channel is convolved
#: alone; else by type, as much of it is hidden behind arithmetic, which takes longer in float32, or left out by kernels
#: of PyTorch's own. How many times its own bytes a weight costs more.
_ALONE, _TOGETHER, _WEIGHT = 4.0, {"f32": 1.0, "bf16": 3.0}, 3.0


def convolution(extern: Extern, device: Device) -> Taken | None:
    """Two dims, not transposed, with a weight as eager has it."""
    x, weight, _, _, _, _, transposed, _, _ = extern.args
    (result,) = extern.outputs
    size = result.size
    if not device.packed_convolutions or result.dtype not in _TOGETHER or transposed or len(x.size) != 4:
        return None
    if 1 in (*x.size[1:], *size[1:]) or 0 in (*x.size, *size):  # what is innermost then would be ambiguous
        return None
    if not same_layout(weight.size, weight.stride, contiguous(weight.size)):
        return None
    if same_layout(x.size, x.stride, contiguous(x.size)):
        elements = prod(map(hint, x.size)) + prod(map(hint, size))
        return Taken((contiguous(size),), elements * (_ALONE if weight.size[1] == 1 else _TOGETHER[result.dtype]))
    if same_layout(x.size, x.stride, channels_last(x.size)):
        nbytes = prod(map(hint, weight.size)) * ITEMSIZE[result.dtype]
        return Taken((channels_last(size),), nbytes * _WEIGHT)
    return None


def channels_last(size: Shape) -> Shape:
    """Strides with the channel innermost."""
    n, c, h, w = size
    batch, row, column, channel = contiguous((n, h, w, c))
    return batch, channel, row, column


DEMANDS["aten.convolution.default"] = convolution
