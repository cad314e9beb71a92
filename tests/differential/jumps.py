"""Eager in wide types, in which operands of operators that jump are rounded to a half type.

Under fast numerics a half type may be kept wide, but not where what comes after it shows by more than its size how it
was rounded: before a comparison, `floor`, a conversion to an integer, a position (`loop/rounding.py`).
Neighbour: `stator/coverage/ways.py` has eager's other ways.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

#: Operators whose result jumps where an operand passes a number.
JUMPS = frozenset(
    (
        "eq ne lt le gt ge isclose equal isnan isinf sign sgn floor ceil trunc round frac floor_divide remainder fmod "
        "argmax argmin sort topk kthvalue median nanmedian mode searchsorted bucketize unique nonzero bernoulli"
    ).split()
)
#: Those that do for some arguments: a division that rounds, extremes of a dim, which give positions too.
JUMPING = {("div", "Tensor_mode"), ("div", "Scalar_mode"), ("max", "dim"), ("min", "dim")}


class BeforeJumps(TorchDispatchMode):
    """While this is active what jumps has operands as a half type holds them."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.half = half

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
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
