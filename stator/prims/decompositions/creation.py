"""Creation: everything constant is `full`, `full_like` or `arange.start_step`.

Memory that eager leaves unset (`empty`) is zero here: one rule fewer to get wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import iota
from stator.prims.table import cast, compute_type, decompose

CONTIGUOUS = (None, torch.contiguous_format, torch.preserve_format)


def _filled(size: Sequence[int], value: float, dtype: Any, device: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    return p.full(list(size), bool(value) if dtype is torch.bool else value, dtype=dtype, device=device)


@decompose("zeros")
def zeros(size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled(size, 0, dtype, device)


@decompose("empty.memory_format")
def empty(size: Sequence[int], *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    if memory_format not in CONTIGUOUS:
        return NotImplemented
    return _filled(size, 0, dtype, device)


@decompose("ones")
def ones(size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled(size, 1, dtype, device)


@decompose("scalar_tensor")
def scalar_tensor(value: float, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled([], value, dtype, device)


def _like(x: Tensor, value: float, dtype: Any, device: Any, memory_format: Any) -> Tensor:
    dtype = dtype or x.dtype
    filled = bool(value) if dtype is torch.bool else value
    if x.is_contiguous() and memory_format in CONTIGUOUS:
        return p.full(list(x.shape), filled, dtype=dtype, device=device or x.device)
    return p.full_like(x, filled, dtype=dtype, device=device or x.device, memory_format=memory_format)


@decompose("zeros_like", "empty_like")
def zeros_like(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _like(x, 0, dtype, device, memory_format)


@decompose("ones_like")
def ones_like(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _like(x, 1, dtype, device, memory_format)


@decompose("new_zeros")
def new_zeros(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), 0, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_ones")
def new_ones(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), 1, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_full")
def new_full(
    x: Tensor, size: Sequence[int], value: float, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    return p.full(list(size), value, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_empty")
def new_empty(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), 0, dtype=dtype or x.dtype, device=device or x.device)


def _range_type(*numbers: float) -> torch.dtype:
    return torch.get_default_dtype() if any(isinstance(n, float | torch.SymFloat) for n in numbers) else torch.int64


@decompose("arange")
def arange(end: float, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.arange(0, end, 1, dtype=dtype or _range_type(end), device=device)


@decompose("arange.start")
def arange_start(start: float, end: float, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.arange(start, end, 1, dtype=dtype or _range_type(start, end), device=device)


@decompose("linspace")
def linspace(start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        return NotImplemented
    if steps < 2:
        return p.full([steps], start, dtype=dtype, device=device)
    return _spaced(start, end, (end - start) / (steps - 1), steps, dtype, device)


@decompose("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace_between(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """One end at least is a 0-dim tensor, so the step is computed in the graph."""
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        return NotImplemented
    wide = compute_type(dtype)
    start, end = [cast(x, wide) if isinstance(x, Tensor) else x for x in (start, end)]
    if steps < 2:
        return cast(p.add(p.full([steps], 0, dtype=wide, device=device), start), dtype)
    return _spaced(start, end, p.div(p.sub(end, start), steps - 1), steps, dtype, device)


def _spaced(start: Any, end: Any, step: Any, steps: int, dtype: torch.dtype, device: Any) -> Tensor:
    """`steps` equally spaced values, counted from the nearer end as eager counts them, so that both ends are exact."""
    number = iota(steps, device)
    exact = p.to_copy(number, dtype=compute_type(dtype))
    rising = p.add(p.mul(exact, step), start)
    falling = p.sub(end, p.mul(p.sub(steps - 1, exact), step))
    return cast(p.where(p.lt(number, steps // 2), rising, falling), dtype)


@decompose("logspace")
def logspace(start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None, **options: Any) -> Tensor:
    if steps == 1 and base > 0:  # eager's number has all its digits
        return _filled([1], float(base) ** start, dtype, options.get("device"))
    return _raised(linspace, start, end, steps, base, dtype or torch.get_default_dtype(), options)


@decompose("logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace_between(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, **options: Any
) -> Tensor:
    return _raised(linspace_between, start, end, steps, base, dtype or torch.get_default_dtype(), options)


def _raised(powers: Any, start: Any, end: Any, steps: int, base: float, dtype: torch.dtype, options: Any) -> Tensor:
    """`base` to equally spaced powers."""
    if not dtype.is_floating_point:
        return NotImplemented
    wide = compute_type(dtype)
    exponents = powers(start, end, steps, dtype=wide, **options)
    return cast(p.power(p.full([], base, dtype=wide, device=options.get("device")), exponents), dtype)


@decompose("empty_strided")
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    span = 1 + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
    memory = p.full([0 if 0 in size else span], 0, dtype=dtype or torch.get_default_dtype(), device=device)
    return p.as_strided(memory, size, stride)


@decompose("empty_permuted")
def empty_permuted(
    size: Sequence[int], order: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    memory = p.full([size[d] for d in order], 0, dtype=dtype or torch.get_default_dtype(), device=device)
    return p.permute(memory, [list(order).index(d) for d in range(len(size))])


@decompose("new_empty_strided")
def new_empty_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    return empty_strided(size, stride, dtype=dtype or x.dtype, device=device or x.device)


@decompose("eye")
def eye(n: int, **kwargs: Any) -> Tensor:
    return eye_m(n, n, **kwargs)


@decompose("eye.m")
def eye_m(n: int, m: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    row = p.unsqueeze(iota(n, device), 1)
    column = iota(m, device)
    return cast(p.eq(row, column), dtype or torch.get_default_dtype())
