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

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from torch.fx import Node
from torch.utils._pytree import tree_leaves

from stator.base.device import HOST, Device
from stator.base.dtypes import ITEMSIZE
from stator.fake.overloads import overload
from stator.graphs.calls import is_view
from stator.graphs.convolutions import both, is_depthwise, is_depthwise_backward, is_laid, is_stem
from stator.graphs.frozen import BLAS_PRODUCT, CONVOLUTION, PRODUCT
from stator.graphs.pairs import MULTIPLY_PAIRS
from stator.graphs.pixels import BLAS, LOOP, MULTIPLY_PIXELS, PAIRS
from stator.loop import expr as e
from stator.loop.demands import DEMANDS, Taken
from stator.loop.expr import Expr
from stator.loop.index import Index
from stator.loop.nest import Buffer, Extern
from stator.lowering import depthwise, pairs
from stator.lowering.context import Context
from stator.lowering.extern import call, extern, read_results, target_name
from stator.lowering.pairs import finished
from stator.lowering.table import lowers
from stator.lowering.value import (
    Indices,
    LazyTensor,
    Place,
    Spec,
    compute_dtype,
    placed,
    pointwise,
    shape,
    with_strides,
)
from stator.prims.set import PRIMITIVES
from stator.sizes import hint
from stator.sizes.strides import Shape, contiguous, is_dense, same_layout

_PRODUCTS = frozenset((*map(overload, ("mm", "addmm", "bmm", "baddbmm")), MULTIPLY_PAIRS))
#: What takes images with the channel innermost, and gives them so.
_TAKE_INNERMOST = frozenset((CONVOLUTION, MULTIPLY_PIXELS))
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


@lowers("convolution")
def traced_convolution(
    context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: LazyTensor | None, *args: Any
) -> LazyTensor:
    if context.node is not None and is_stem(context.node, context.device) and is_laid(context.node):
        return _stem(context, out, x, weight, bias, *args)
    if context.node is None or not is_depthwise(context.node, context.device):
        found: LazyTensor = extern(context, out, x, weight, bias, *args)
        return found
    stride, padding, dilation, *_ = args
    window = depthwise.Window(weight.size[2:], *map(both, (stride, padding, dilation)))
    if not context.device.host:
        context.place(x)
        return _as_in_eager(context, depthwise.lower(context, out, x, weight, bias, window), out)
    value = depthwise.lower(context, out, _without_border(context, x), weight, bias, window)
    value.stride = channels_last(out.size)
    context.realize(value)
    return value if same_layout(out.size, out.stride, value.stride) else with_strides(value, out.stride)


@lowers("convolution_backward")
def traced_convolution_backward(
    context: Context, out: Any, gradient: LazyTensor, x: LazyTensor, weight: LazyTensor, *args: Any
) -> Any:
    if context.node is None or not is_depthwise_backward(context.node, context.device):
        return extern(context, out, gradient, x, weight, *args)
    _, stride, padding, dilation, *_ = args
    window = depthwise.Window(weight.size[2:], *map(both, (stride, padding, dilation)))
    read = read_results(context.node, len(out))
    context.place(gradient)
    of_image = of_weight = None
    if 0 in read:
        value = depthwise.image_gradient(context, out[0], gradient, weight, window)
        of_image = _as_in_eager(context, value, out[0])
    if 1 in read:
        context.place(x)
        of_weight = depthwise.weight_gradient(context, out[1], gradient, x, window)
    return of_image, of_weight, None


def _as_in_eager(context: Context, value: LazyTensor, out: Spec) -> LazyTensor:
    """The value in memory, with the strides that the graph says."""
    value.stride = out.stride
    context.realize(value)
    return value


def _stem(
    context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: LazyTensor | None, *args: Any
) -> LazyTensor:
    """One of few terms: the product of what windows read, which is not copied for it, and the weight."""
    stride, _, dilation, *_ = args
    (down, across), (below, beside), wide = both(stride), both(dilation), compute_dtype(out.dtype)
    image = _widened(context, x, wide)
    context.place(weight)

    def term(at: Indices) -> Expr:
        batch, row, column, result, channel, i, j = at
        pixel = image.load((batch, channel, row * down + i * below, column * across + j * beside))
        return e.op("mul", e.cast(pixel, wide), e.cast(weight.load((result, channel, i, j)), wide))

    made = out._replace(stride=channels_last(out.size))
    n, columns, h, w = out.size
    size = (n, h, w, columns, *weight.size[1:])
    product = context.reduce(size, [4, 5, 6], wide, lambda at: e.reduce("sum", term(at)), False)
    assert product.place is not None
    value = finished(made, placed(made.size, Place(product.place.buffer, made.stride)), bias)
    return value if same_layout(out.size, out.stride, made.stride) else with_strides(value, out.stride)


def _widened(context: Context, x: LazyTensor, dtype: str) -> LazyTensor:
    """An image whose elements are loaded for all lanes, one by one: none of these loads is to be converted as well."""
    image = x
    if x.dtype != dtype:
        image = pointwise(x.size, dtype, lambda at: e.cast(x.load(at), dtype), x.weight)
        image.stride, image.name = x.stride, x.name
    context.place(image)
    return image


# -- with a weight in the library's order ------------------------------------------------------------


@lowers(CONVOLUTION)
def packed_convolution(context: Context, out: Spec, x: LazyTensor, *args: Any) -> LazyTensor:
    made = out._replace(stride=channels_last(out.size))
    value: LazyTensor = call(context, target_name(CONVOLUTION), made, (_innermost(context, x), *args), {})
    return value if same_layout(out.size, out.stride, made.stride) else with_strides(value, out.stride)


@lowers(MULTIPLY_PIXELS)
def pixels(
    context: Context, out: Spec, x: LazyTensor, weight: LazyTensor, bias: LazyTensor | None, packed: Any, by: str
) -> LazyTensor:
    """The product of a matrix with a row for each pixel, and the weight."""
    image, made = _innermost(context, x), out._replace(stride=channels_last(out.size))
    if by == LOOP:
        value = finished(made, _loop(context, made, image, weight), bias)
    elif by == PAIRS:
        value = _in_pairs(context, made, image, packed, bias)
    else:
        value = _by_library(context, made, image, weight, bias, packed, by)
    return value if same_layout(out.size, out.stride, made.stride) else with_strides(value, out.stride)


def _by_library(
    context: Context, made: Spec, image: LazyTensor, weight: LazyTensor, bias: Any, packed: Any, by: str
) -> LazyTensor:
    """MKL's product copies a bias over all rows before, so the kernel that reads the result adds it."""
    columns, terms = weight.size
    rows, place = made.size[0] * made.size[2] * made.size[3], context.place(image)
    matrix = placed((rows, terms), Place(place.buffer, (terms, 1), place.offset))
    result = Spec((rows, columns), (columns, 1), made.dtype, made.device)
    if by == BLAS:
        product = call(context, target_name(BLAS_PRODUCT), result, (matrix, packed, weight, None, rows), {})
    else:
        product = call(context, target_name(PRODUCT), result, (matrix, packed, bias, "none", (), ""), {})
    value = placed(made.size, Place(product.place.buffer, made.stride))
    return finished(made, value, bias) if by == BLAS else value


def _loop(context: Context, made: Spec, image: LazyTensor, weight: LazyTensor) -> LazyTensor:
    n, columns, h, w = made.size
    context.place(image)
    context.place(weight)

    def term(at: Indices) -> Expr:
        batch, row, column, result, channel = at
        return e.op("mul", image.load((batch, channel, row, column)), weight.load((result, channel)))

    size = (n, h, w, columns, weight.size[1])
    product = context.reduce(size, [4], made.dtype, lambda at: e.reduce("sum", term(at)), False)
    assert product.place is not None
    return placed(made.size, Place(product.place.buffer, made.stride))


def _in_pairs(
    context: Context, made: Spec, image: LazyTensor, packed: LazyTensor, bias: LazyTensor | None
) -> LazyTensor:
    """The same, by instructions for pairs of terms."""
    context.place(image)
    _, channels, _, _ = image.size

    def row(at: Indices, channel: Index) -> Expr:
        batch, down, across = at
        return image.load((batch, channel, down, across))

    return pairs.product(context, made, channels, row, packed, bias)


def wants_innermost(node: Node, out: Spec, operands: Any) -> bool:
    """Whether the value of a node is to have the channel innermost: such a convolution reads it, or an image that it
    is computed from has it so."""
    if len(out.size) != 4 or same_layout(out.size, out.stride, channels_last(out.size)):
        return False
    read = any(user.target in _TAKE_INNERMOST and user.args[0] is node for user in node.users)
    return read or any(isinstance(x, LazyTensor) and x.innermost is not None for x in tree_leaves(operands))


def follows(node: Node, out: Spec, values: Mapping[Node, Any]) -> Shape | None:
    """The strides to write a value with that only kernels and products read: those of an operand that lies otherwise
    than in eager, as views of images with the channel innermost do; None where it is to lie as eager has it."""
    for source in node.all_input_nodes:
        value, eager = values[source], source.meta["val"]
        if isinstance(value, LazyTensor) and value.raw is None and value.size == out.size:
            stride = _lying(value)
            if not same_layout(value.size, stride, shape(eager.stride())) and is_dense(value.size, stride):
                return stride if all(map(_takes_any, _readers(node))) else None
    return None


def _readers(node: Node) -> Iterator[Node]:
    """Who reads a value, through views."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        else:
            yield user


def _takes_any(node: Node) -> bool:
    """Whether it takes operands in any layout: a kernel, or a product."""
    primitive = PRIMITIVES.get(node.target)  # type: ignore[call-overload]
    return node.target in _PRODUCTS or (primitive is not None and primitive.kind != "extern")


def _lying(value: LazyTensor) -> Shape:
    """As `_lies`, of an image with the channel innermost where there is that one."""
    if value.innermost is not None:
        return _lying(value.innermost)
    if value.place is None and value.base is not None and value.restride is not None:
        place = value.restride(Place(_NOWHERE, _lying(value.base)))
        return value.stride if place is None else place.stride
    return _lies(value)


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


def _without_border(context: Context, x: LazyTensor) -> LazyTensor:
    """The image with the channel innermost; of one with a border around only what is inside is in memory."""
    image = x if x.innermost is None else x.innermost
    if image.place is not None or image.bordered is None:
        return _innermost(context, x)
    _innermost(context, image.bordered)
    assert image.body is not None
    image.rewrite(image.body, 3)
    return image


def _lies(value: LazyTensor) -> Shape:
    """The strides that a value has in memory, or would have."""
    if value.place is not None:
        return value.place.stride
    if value.base is not None and value.restride is not None:
        place = value.restride(Place(_NOWHERE, _lies(value.base)))
        return value.stride if place is None else place.stride
    return value.stride
