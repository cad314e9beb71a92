"""Operands that repeat one element along a dim (`expand`), where eager's kernel reads beyond them.

On the CPU `median` and `nanmedian` of such a dim go on to the elements that lie beside the one, and past the end of
memory: what they give is neither a median nor twice the same. So it ends a graph.
Invariant: only programs are asked. Neighbour: `mode.py` asks.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.symbolic import size_of
from stator.fake.tensor import FakeTensor

aten = torch.ops.aten

MISREAD = {aten.median.dim, aten.nanmedian.dim, aten.median.dim_values, aten.nanmedian.dim_values}


def check(func: Any, args: tuple[Any, ...]) -> None:
    """Refuses what eager misreads."""
    if func not in MISREAD or len(args) < 2 or not isinstance(args[0], FakeTensor) or args[0].device.type != "cpu":
        return
    x, dim = args[:2]
    if -x.dim() <= dim < x.dim() and size_of(x.stride(dim)) == 0 and size_of(x.shape[dim]) > 1:
        why = "eager's kernel reads beyond an operand that repeats one element along the dim"
        raise Unsupported(func, why, "make the operand contiguous")
