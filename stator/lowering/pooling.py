"""The gradient of a max pool, gathered: each element of the image adds up what the windows over it give it.

Which element of a window was the greatest is in the indices, so a window is asked whether that is this one. Both are in
memory, as several elements ask each window: to find the greatest again would take far longer. So is the gradient, for
whoever reads it: each reader would ask all windows again. No two points write one address, so nothing is set to zero
first, and what reads the gradient may be the same kernel. A device says whether that is faster than PyTorch's kernel.
Neighbour: `prims/decompositions/maxima.py` has the way forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import Index
from stator.lowering.context import Context
from stator.lowering.extern import extern
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Spec, compute_dtype, pointwise

#: Windows over one element up to which they are gathered.
_MANY = 16


@lowers("max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    context: Context,
    out: Spec,
    grad: LazyTensor,
    x: LazyTensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    indices: LazyTensor,
) -> Any:
    """Windows of `size` (rows, columns) that move by `stride`, or by their size where that is empty."""
    both = [_pair(numbers) for numbers in (size, stride or size, padding, dilation)]
    fixed = all(type(n) is int for n in (*grad.size, *out.size, *[n for pair in both for n in pair]))
    if not context.device.gathers_pools or not fixed or 0 in grad.size:
        return extern(context, out, grad, x, size, stride, padding, dilation, ceil, indices)
    counts = [-(-((n - 1) * apart + 1) // step) for n, step, _, apart in zip(*both, strict=True)]
    if counts[0] * counts[1] > _MANY:
        return extern(context, out, grad, x, size, stride, padding, dilation, ceil, indices)
    wide, width = compute_dtype(out.dtype), out.size[-1]
    beside = context.place(grad).stride  # several elements read each window, so both are in memory
    where = indices
    if indices.place is None:  # positions in an image take no 64 bits
        where = pointwise(indices.size, "i32", lambda at: e.cast(indices.load(at), "i32"), indices.weight)
        where.stride = beside
    context.place(where)

    def body(at: Indices) -> Expr:
        *image, row, column = at
        place, total = e.index(row * width + column), e.const(0.0, wide)
        last = [(i + edge) // step for i, step, edge in zip((row, column), both[1], both[2], strict=True)]
        for back in product(*map(range, counts)):
            window = [i - n for i, n in zip(last, back, strict=True)]
            inside = _inside(window, grad.size[-2:])
            chosen = e.op("eq", e.cast(where.load((*image, *window)), "i64"), place)
            given = e.op("where", chosen, e.cast(grad.load((*image, *window)), wide), e.const(0.0, wide))
            total = e.op("add", total, e.masked(inside, given, e.const(0.0, wide)))
        return e.cast(total, out.dtype)

    made = pointwise(out.size, out.dtype, body, 4 * counts[0] * counts[1])
    made.stride = out.stride
    context.realize(made)
    return made


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    return (numbers[0], numbers[-1])


def _inside(position: Sequence[Index], size: Sequence[Any]) -> Expr:
    """Whether there is a window at a position; those before the first one and behind the last are none."""
    mask = e.const(True, "bool")
    for index, extent in zip(position, size, strict=True):
        for op, end in (("ge", 0), ("lt", extent)):
            mask = e.op("and", mask, e.op(op, e.index(index), e.index(Index.of(end))))
    return mask
