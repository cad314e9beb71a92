"""Eager in wide types, some of whose results or operands are rounded to a half type.

Under fast numerics a half type may be kept wide by one kernel and lie in memory for the next (`SomeRounded`), in
backward alone too, where forward's kernels are of one operator each (`rounded_in_forward`), but is
not kept wide where what comes after it shows by more than its size how it was rounded: before a comparison, `floor`, a
conversion to an integer, a position (`BeforeJumps`; `loop/rounding.py`). What an operator takes besides, such as the
number that a loss keeps its divisor above, is as a half type holds it all the same (`SomeInHalf`).
Neighbour: `stator/coverage/ways.py` has eager's other ways.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from stator.coverage.mode import Way
from stator.coverage.ways import InForward, Together

#: Operators whose result jumps where an operand passes a number.
JUMPS = frozenset(
    (
        "eq ne lt le gt ge isclose equal isnan isinf sign sgn floor ceil trunc round frac floor_divide remainder fmod "
        "argmax argmin sort topk kthvalue median nanmedian mode searchsorted bucketize unique nonzero bernoulli"
    ).split()
)
#: Those that do for some arguments: a division that rounds, extremes of a dim, which give positions too.
JUMPING = {("div", "Tensor_mode"), ("div", "Scalar_mode"), ("max", "dim"), ("min", "dim")}


class BeforeJumps(Way):
    """While this is active what jumps has operands as a half type holds them."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.half = half

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1].strip("_")
        converts = name == "to_copy" and not kwargs.get("dtype", torch.float32).is_floating_point
        jumps = name in JUMPS or (name, func._overloadname) in JUMPING or converts
        if not jumps or func._schema.is_mutable:
            return func(*args, **kwargs)
        return func(*tree_map(self._rounded, args), **kwargs)

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return value.to(self.half).to(value.dtype)


class SomeRounded(Way):
    """While this is active results of such a part of all operators, by a seed, are as a half type holds them."""

    def __init__(self, half: torch.dtype, seed: int, part: float = 0.5) -> None:
        super().__init__()
        self.half, self.random, self.part = half, random.Random(seed), part

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        if func._schema.is_mutable or any(r.alias_info is not None for r in func._schema.returns):
            return out
        return tree_map(self._rounded, out) if self.random.random() < self.part else out

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype is not torch.float32:
            return value
        return value.copy_(value.to(self.half))


class SomeInHalf(SomeRounded):
    """While this is active such a part of all operators, by a seed, is computed in a half type."""

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        fresh = not func._schema.is_mutable and all(r.alias_info is None for r in func._schema.returns)
        if not fresh or self.random.random() >= self.part:
            return func(*args, **kwargs)
        try:
            out = func(*tree_map(self._narrowed, args), **kwargs)
        except (RuntimeError, NotImplementedError):  # it takes no half types
            return super().called(func, args, kwargs)
        return tree_map(self._widened, out)

    def _narrowed(self, value: Any) -> Any:
        return value.to(self.half) if isinstance(value, Tensor) and value.dtype is torch.float32 else value

    def _widened(self, value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype is self.half else value


def rounded_in_forward(half: torch.dtype, seed: int, part: float) -> Together:
    """All results of forward are as a half type holds them, and such a part of backward's, by a seed."""
    return Together(InForward(SomeRounded(half, seed, 1.0)), SomeRounded(half, seed, part))
