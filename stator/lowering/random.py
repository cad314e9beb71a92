"""`stator::random`: the loop IR has it as an operator of (seed, element number); a draw reads its own seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Spec, pointwise
from stator.prims.random import RANDOM
from stator.sizes.strides import contiguous


@lowers(RANDOM)
def random(
    context: Context,
    out: Spec,
    seeds: LazyTensor,
    draw: int,
    size: Sequence[int],
    *,
    kind: str,
    dtype: Any,
    device: Any,
) -> LazyTensor:
    steps = contiguous(out.size)

    def body(at: Indices) -> Expr:
        number = ZERO
        for index, step in zip(at, steps, strict=True):
            number = number + index * step
        drawn = e.random(kind, seeds.load((Index.of(draw),)), e.index(number))
        return e.cast(drawn, out.dtype)

    return pointwise(out.size, out.dtype, body, 8)
