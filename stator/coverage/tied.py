"""Eager once more, with the other of two zeros wherever an extreme is both: which one it is depends on the order.

`max` and its kin compare, and -0.0 equals 0.0: of both they keep the one that their loop meets first or last, by lanes
and by threads. `atan2`, `copysign`, `signbit` and a quotient show which.
Neighbour: `ways.py` has eager's other ways, and lists this one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from stator.coverage.mode import Way

#: Operators that give an element of their operands, the greatest or the least.
EXTREMES = frozenset(
    "amax amin max min aminmax maximum minimum fmax fmin clamp clamp_min clamp_max cummax cummin".split()
)


class Tied(Way):
    """Zeros of which an extreme had both signs to choose from have that of a coin."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1]
        if name not in EXTREMES or "out" in kwargs:
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        given = [tree_map(lambda x, sign=sign: _apart(x, sign), args) for sign in (1, -1)]
        results = [tree_leaves(result) for result in (out, *[func(*operands, **kwargs) for operands in given])]
        for result, one, other in zip(*results, strict=True):
            if isinstance(result, Tensor) and result.is_floating_point():
                # Zeros are the least numbers of their sign in one, and of the opposite sign in the other: where an
                # extreme is the same in both, it had one of each to choose from.
                tied = (result == 0) & (one == other) & (one != 0)
                coin = torch.rand(result.shape, generator=self.generator, dtype=torch.float64).to(result.device) < 0.5
                result.copy_(torch.where(tied, torch.where(coin, -0.0, 0.0).to(result.dtype), result))
        return out


def _apart(value: Any, sign: int) -> Any:
    """Zeros as the least numbers of their sign, or of the opposite one, so that they are told apart."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    least = torch.finfo(value.dtype).smallest_normal * torch.finfo(value.dtype).eps
    return torch.where(value == 0, sign * torch.copysign(torch.full_like(value, least), value), value)
