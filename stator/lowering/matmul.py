"""Products as nests for a device that multiplies tiles of matrices: which ones, and in which loops.

The nest of a product has its bias and its rounding in it, so that what reads the result joins it as it would join any
reduction (`loop/fusion.py`). Its loops are the dims in which the program reads the result: where `[b*s, n]` is viewed
as `[b, s, heads, n // heads]` and turned, rows are loops over `b` and `s`, and the turned result is what is stored.
Neighbours: `product.py` asks; `loop/contraction.py` finds the product again in the kernel, `kernel/matmul.py` decides
how it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch.fx import Node

from stator.graphs.calls import is_view
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.value import Indices, LazyTensor, Place, Spec, broadcast, placed
from stator.sizes.strides import contiguous

#: The dtypes of products that are nests.
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def tiles(context: Context, out: Spec, a: LazyTensor, b: LazyTensor, bias: LazyTensor | None = None) -> LazyTensor:
    """`a @ b + bias`, summed up in float32 and rounded once."""
    for operand in (a, b):
        context.place(operand)  # each element is read many times
    parts = _loops(context.node, out.size)
    ends = [len(part) for part in parts]
    size = (*[n for part in parts for n in part], a.size[-1])

    def body(at: Indices) -> Expr:
        index, start = [], 0
        for part, count in zip(parts, ends, strict=True):
            index.append(_position(at[start : start + count], part))
            start += count
        *batch, row, column = index
        factors = a.load((*batch, row, at[-1])), b.load((*batch, at[-1], column))
        total = e.reduce("sum", e.op("mul", *[e.cast(factor, "f32") for factor in factors]))
        if bias is not None:
            total = e.op("add", total, e.cast(broadcast(bias, (row, column)), "f32"))
        return e.cast(total, out.dtype)

    made = context.reduce(size, [len(size) - 1], out.dtype, body, False)
    return placed(out.size, Place(context.place(made).buffer, contiguous(out.size)))


def _position(at: Sequence[Index], part: Sequence[int]) -> Index:
    position = ZERO
    for index, size in zip(at, part, strict=True):
        position = position * size + index
    return position


def _loops(node: Node | None, size: Sequence[int]) -> list[tuple[int, ...]]:
    """For each dim of a product the dims in which the first view that divides them reads it."""
    for user in node.users if node is not None else ():
        value = user.meta.get("val")
        if is_view(user) and isinstance(value, torch.Tensor):
            parts = divided(size, value.shape)
            if parts is not None and max(map(len, parts)) > 1:
                return parts
    return [(n,) for n in size]


def divided(size: Sequence[int], into: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Dims as products of runs of other dims; None where these are no such runs, or not all are numbers.

    divided((6, 8), (2, 3, 4, 2))  ->  [(2, 3), (4, 2)]
    """
    if any(type(n) is not int for n in (*size, *into)):
        return None
    parts, start = [], 0
    for n in size:
        end = start + 1
        while end < len(into) and prod(into[start:end]) < n:
            end += 1
        if prod(into[start:end]) != n or start >= len(into):
            return None
        parts.append(tuple(into[start:end]))
        start = end
    return parts if all(n == 1 for n in into[start:]) else None
