"""Convolutions and the channel innermost: what they take beside what they were traced with, and those that want it.

On the CPU PyTorch's library convolves in an order of its own, into which it copies images that lie as eager has them,
and back; images with the channel innermost it takes as they are, but brings weights to them more slowly. So there is
gained by the elements of operand and result, and lost by those of the weight.

With a weight in that order (`passes/convolutions.py`) its images have the channel innermost, whatever the graph says;
so has what lies between such convolutions, and who wants eager's strides gets a copy.
Neighbours: `loop/channels.py` decides by it, `fake/rules_layers.py` has the strides of results. docs/benchmarks.md has
what was measured.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch.fx import Node
from torch.utils._pytree import tree_leaves

from stator.base.device import HOST, Device
from stator.base.dtypes import ITEMSIZE
from stator.graphs.frozen import CONVOLUTION
from stator.loop.demands import DEMANDS, Taken
from stator.loop.nest import Buffer, Extern
from stator.lowering.context import Context
from stator.lowering.extern import call, target_name
from stator.lowering.table import lowers
from stator.lowering.value import LazyTensor, Place, Spec, pointwise, with_strides
from stator.sizes import hint
from stator.sizes.strides import Shape, contiguous, same_layout

#: The buffer of what only would lie somewhere.
_NOWHERE = Buffer("", "f32", (), (), HOST)
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


# -- with a weight in the library's order ------------------------------------------------------------


@lowers(CONVOLUTION)
def packed_convolution(context: Context, out: Spec, x: LazyTensor, *args: Any) -> LazyTensor:
    made = out._replace(stride=channels_last(out.size))
    value: LazyTensor = call(context, target_name(CONVOLUTION), made, (_innermost(context, x), *args), {})
    return value if same_layout(out.size, out.stride, made.stride) else with_strides(value, out.stride)


def wants_innermost(node: Node, out: Spec, operands: Any) -> bool:
    """Whether the value of a node is to have the channel innermost: such a convolution reads it, or an image that it
    is computed from has it so."""
    if len(out.size) != 4 or same_layout(out.size, out.stride, channels_last(out.size)):
        return False
    read = any(user.target is CONVOLUTION and user.args[0] is node for user in node.users)
    return read or any(isinstance(x, LazyTensor) and x.innermost is not None for x in tree_leaves(operands))


def _innermost(context: Context, x: LazyTensor) -> LazyTensor:
    """The image with the channel innermost; from then on others read that one too, but who wants its own strides."""
    stride = channels_last(x.size)
    if same_layout(x.size, _lies(x), stride):
        return x
    if x.innermost is None:
        x.innermost = pointwise(x.size, x.dtype, x.load, x.weight)
        x.innermost.stride, x.innermost.name, x.innermost.parts = stride, x.name, x.parts
        x.innermost.operators = x.operators
    context.place(x.innermost)
    if x.place is None:
        x.rewrite(x.innermost.load, 1)
    return x.innermost


def _lies(value: LazyTensor) -> Shape:
    """The strides that a value has in memory, or would have."""
    if value.place is not None:
        return value.place.stride
    if value.base is not None and value.restride is not None:
        place = value.restride(Place(_NOWHERE, _lies(value.base)))
        return value.stride if place is None else place.stride
    return value.stride
