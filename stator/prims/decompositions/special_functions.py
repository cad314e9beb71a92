"""Special functions: one primitive for those of one or two tensors, and what is made of it."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.dtypes import cast, common_type, compute_type, holding, rounds_steps
from stator.prims.special_functions import FUNCTIONS, SPECIAL
from stator.prims.table import decompose

#: What loops compute on; ATen takes unsigned integers of more than 8 bits too.
NUMBERS = frozenset((
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
))  # fmt: skip


#: What libraries of GPUs have a function for; on the host ATen's, which is MKL's, is as fast as loops.
_OF_GPUS = frozenset(("erfinv",))


def _register(name: str) -> None:
    @decompose(name)
    def run(x: Tensor, y: Tensor | None = None) -> Any:
        known = x.dtype in NUMBERS and (y is None or y.dtype in NUMBERS)
        known = known and not (name in _OF_GPUS and x.device.type == "cpu")
        return SPECIAL(name, x, y) if known else NotImplemented


def _number(value: float, other: Tensor) -> Tensor:
    """A number as a tensor of the type in which it meets the other operand."""
    dtype = common_type(other, value)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    return cast(p.full([], value, dtype=holding(value, dtype), device=other.device), dtype)


for _name in FUNCTIONS:
    _register(_name)


def _floating(x: Tensor) -> Tensor:
    """Whole numbers and truth values as floats."""
    return x if x.dtype.is_floating_point else cast(x, torch.get_default_dtype())


@decompose("polygamma")
def polygamma(n: int, x: Tensor) -> Any:
    if n not in (0, 1) or x.dtype not in NUMBERS:
        return NotImplemented
    return SPECIAL("trigamma" if n else "digamma", x)


@decompose("mvlgamma")
def mvlgamma(x: Tensor, order: int) -> Any:
    """The logarithm of the gamma function of `order` variables: those of x - 1/2, x, … added up."""
    if order < 1 or x.dtype not in NUMBERS:
        return NotImplemented
    x = _floating(x)
    steps = [p.sub(x, k / 2.0) for k in range(order - 1, 0, -1)]
    terms = [cast(SPECIAL("lgamma", step), compute_type(x.dtype)) for step in (*steps, x)]
    return p.add(cast(functools.reduce(p.add, terms), x.dtype), order * (order - 1) / 4.0 * math.log(math.pi))


@decompose("special_entr")
@rounds_steps(torch.bfloat16, torch.float16)
def entr(x: Tensor) -> Tensor:
    """-x log(x), 0 at 0 and minus infinity left of it."""
    x = _floating(x)
    value = p.mul(p.neg(x), p.log(x))
    return p.where(p.eq(x, 0.0), 0.0, p.where(p.lt(x, 0.0), -math.inf, value))


@decompose("special_xlog1py")
@rounds_steps(torch.bfloat16, torch.float16)
def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """x log(1 + y), and 0 where x is, unless y is NaN."""
    value = p.mul(x, p.log1p(_floating(y)))
    return p.where(p.logical_and(p.eq(x, 0.0), p.logical_not(p.isnan(y))), 0.0, value)


@decompose("special_xlog1py.other_scalar")
def xlog1py_number(x: Tensor, y: float) -> Tensor:
    value: Tensor = xlog1py(x, _number(y, x))
    return value


@decompose("special_xlog1py.self_scalar")
def xlog1py_of_number(x: float, y: Tensor) -> Tensor:
    value: Tensor = xlog1py(_number(x, y), y)
    return value
