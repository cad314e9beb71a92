"""Eager once more, with every product rounded that its kernels join with a sum.

A compiler of C++ makes one instruction of a product and the sum behind it, where it finds them beside each other in a
kernel and the processor has it: no rounding, and no overflow, comes between. So near the ends of a dtype `x + a * b` is
a number with such an instruction and an infinity, or NaN, without. `STEPS` has the formulas of these kernels.
Neighbour: `ways.py` has eager's other ways, and lists this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from stator.coverage.mode import Way
from stator.prims.dtypes import HALF_TYPES


class Stepwise(Way):
    """While this is active every step of a formula is rounded."""

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1].rstrip("_")
        if name in RESIZED and "out" not in kwargs:
            return _resized(func(*args, **kwargs), *args, **kwargs)
        formula = STEPS.get(name)
        if formula is None or "out" in kwargs:
            return func(*args, **kwargs)
        given = tree_map(lambda a: a.clone() if isinstance(a, Tensor) else a, args) if func._schema.is_mutable else args
        out = func(*args, **kwargs)
        if not (out.is_floating_point() or out.is_complex()):
            return out
        dtype = torch.float32 if out.dtype in HALF_TYPES else out.dtype
        value = formula(*[_in(a, dtype, out) for a in given], **{k: _in(v, dtype, out) for k, v in kwargs.items()})
        return out if value is None else out.copy_(value)


def _in(value: Any, dtype: torch.dtype, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype).resolve_conj().resolve_neg()
    return torch.tensor(value, dtype=dtype, device=like.device)


def _sum(a: Tensor, b: Tensor) -> Tensor:
    return torch.complex(a.real + b.real, a.imag + b.imag) if a.is_complex() else a + b


def _product(a: Tensor, b: Tensor) -> Tensor:
    if not a.is_complex():
        return a * b
    return torch.complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _add(x: Tensor, y: Tensor, alpha: Tensor | None = None) -> Tensor | None:
    return None if alpha is None else _sum(x, _product(alpha, y))


def _sub(x: Tensor, y: Tensor, alpha: Tensor | None = None) -> Tensor | None:
    return None if alpha is None else _add(x, y, -alpha)


def _mul(x: Tensor, y: Tensor) -> Tensor | None:
    return _product(x, y) if x.is_complex() else None


def _pow(x: Tensor, exponent: Tensor) -> Tensor | None:
    if not x.is_complex() or exponent.dim() or exponent not in (2, 3):
        return None
    square = _product(x, x)
    return square if exponent == 2 else _product(square, x)


def _addcmul(x: Tensor, a: Tensor, b: Tensor, value: Tensor | None = None) -> Tensor:
    return _sum(x, _product(a if value is None else _product(value, a), b))


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Tensor | None = None) -> Tensor:
    return _sum(x, (a if value is None else _product(value, a)) / b)


def _addr(x: Tensor, a: Tensor, b: Tensor, beta: Tensor | None = None, alpha: Tensor | None = None) -> Tensor | None:
    if beta is not None and beta == 0:
        return None
    product = _product((a if alpha is None else _product(alpha, a)).unsqueeze(1), b)
    return _sum(x if beta is None else _product(beta, x), product)


def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    way = _sum(end, -start)
    near = _sum(start, _product(weight, way))
    return torch.where(weight.abs() < 0.5, near, _sum(end, -_product(way, 1 - weight)))


def _resized(out: Tensor, x: Tensor, size: list[int], align: bool, *scales: float | None, **named: Any) -> Tensor:
    """Interpolation dim by dim, the last one first; one of eager's two kernels joins the weights of all dims."""
    if not out.is_floating_point() or out.dtype in HALF_TYPES or not out.numel():
        return out  # half types have weights of their own rounding
    given = [*scales, *named.values(), *[None] * len(size)]
    value = x
    for dim in reversed(range(len(size))):
        low, high, weight = _places(value, dim + 2, size[dim], align, given[dim])
        near, far = value.index_select(dim + 2, low), value.index_select(dim + 2, high)
        weight = weight.view(-1, *[1] * (len(size) - 1 - dim))
        value = near * (1 - weight) + far * weight
    return out.copy_(value)


def _places(x: Tensor, dim: int, count: int, align: bool, scale: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """What each result lies between, and the weight of the second; eager joins product and difference here."""
    extent, numbers = x.shape[dim], torch.arange(count, dtype=x.dtype, device=x.device)
    if extent == count:
        same = torch.arange(count, device=x.device)
        return same, same, torch.zeros_like(numbers)
    ratio, shift = extent / count if scale is None or scale <= 0 else 1.0 / scale, 0.5
    if align:
        ratio, shift = (extent - 1) / (count - 1) if count > 1 else 0.0, 0.0
    place = torch.addcmul(torch.full_like(numbers, -shift), torch.full_like(numbers, ratio), numbers + shift).clamp(0)
    low = place.float().floor().long().clamp(max=extent - 1)
    return low, (low + 1).clamp(max=extent - 1), (place - low).clamp(0, 1)


#: What interpolates linearly: its kernels join the products of weights with sums, in one of two ways.
RESIZED = frozenset({"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"})
#: Operator → its kernel's formula, one step after the other; None where it joins nothing.
STEPS: dict[str, Callable[..., Tensor | None]] = {
    "add": _add, "sub": _sub, "mul": _mul, "pow": _pow, "addcmul": _addcmul, "addcdiv": _addcdiv, "lerp": _lerp,
    "addr": _addr,
}  # fmt: skip
