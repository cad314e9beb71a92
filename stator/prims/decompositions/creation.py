"""Creation: everything constant is `full`, `full_like` or `arange.start_step`.

Memory that eager leaves unset (`empty`) is zero here: one rule fewer to get wrong. Under deterministic algorithms eager
fills it, and so do we.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.fake.layout import contiguous_strides
from stator.fake.symbolic import is_symbolic, size_of
from stator.prims import names as p
from stator.prims.decompositions.layout import iota
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose

CONTIGUOUS = (None, torch.contiguous_format, torch.preserve_format)


def _filled(size: Sequence[int], value: float, dtype: Any, device: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    return p.full(list(size), bool(value) if dtype is torch.bool else value, dtype=dtype, device=device)


def unwritten(dtype: torch.dtype) -> Any:
    """What memory that nobody has written holds: under deterministic algorithms what eager fills it with."""
    if not (torch.are_deterministic_algorithms_enabled() and torch._C._get_deterministic_fill_uninitialized_memory()):
        return 0
    if dtype.is_complex:
        return complex(math.nan, math.nan)
    if dtype.is_floating_point:
        return math.nan
    return True if dtype is torch.bool else torch.iinfo(dtype).max


@decompose("zeros", also_complex=True)
def zeros(size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled(size, 0, dtype, device)


@decompose("empty.memory_format", also_complex=True)
def empty(size: Sequence[int], *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    if memory_format not in CONTIGUOUS:
        return NotImplemented
    dtype = dtype or torch.get_default_dtype()
    return _filled(size, unwritten(dtype), dtype, device)


@decompose("ones", also_complex=True)
def ones(size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled(size, 1, dtype, device)


@decompose("scalar_tensor", also_complex=True)
def scalar_tensor(value: float, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _filled([], value, dtype, device)


def _like(x: Tensor, value: float, dtype: Any, device: Any, memory_format: Any) -> Tensor:
    dtype = dtype or x.dtype
    filled = bool(value) if dtype is torch.bool else value
    if x.is_contiguous() and memory_format in CONTIGUOUS:
        return p.full(list(x.shape), filled, dtype=dtype, device=device or x.device)
    return p.full_like(x, filled, dtype=dtype, device=device or x.device, memory_format=memory_format)


@decompose("empty_like", also_complex=True)
def empty_like(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _like(x, unwritten(dtype or x.dtype), dtype, device, memory_format)


@decompose("zeros_like", also_complex=True)
def zeros_like(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _like(x, 0, dtype, device, memory_format)


@decompose("ones_like", also_complex=True)
def ones_like(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _like(x, 1, dtype, device, memory_format)


@decompose("new_zeros", also_complex=True)
def new_zeros(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), 0, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_ones", also_complex=True)
def new_ones(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), 1, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_full", also_complex=True)
def new_full(
    x: Tensor, size: Sequence[int], value: float, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    return p.full(list(size), value, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_empty", also_complex=True)
def new_empty(x: Tensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return p.full(list(size), unwritten(dtype or x.dtype), dtype=dtype or x.dtype, device=device or x.device)


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
        return _whole_numbers(start, end, steps, dtype, device)
    if steps < 2:
        return p.full([steps], start, dtype=dtype, device=device)
    return _spaced(start, end, (end - start) / (steps - 1), steps, dtype, device)


@decompose("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace_between(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """One end at least is a 0-dim tensor, so the step is computed in the graph."""
    start, end = [_brought(x, device) for x in (start, end)]
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        return _whole_numbers(start, end, steps, dtype, device)
    wide = compute_type(dtype)
    start, end = [cast(x, wide) if isinstance(x, Tensor) else x for x in (start, end)]
    if steps < 2:
        return cast(p.add(p.full([steps], 0, dtype=wide, device=device), start), dtype)
    return _spaced(start, end, p.div(p.sub(end, start), steps - 1), steps, dtype, device)


def _brought(x: Any, device: Any) -> Any:
    """An end on the device of the result, which its own does not decide."""
    wanted = torch.device(device or "cpu")
    return p.to_copy(x, device=wanted) if isinstance(x, Tensor) and x.device.type != wanted.type else x


def _spaced(start: Any, end: Any, step: Any, steps: int, dtype: torch.dtype, device: Any) -> Tensor:
    """`steps` equally spaced values, counted from the nearer end as eager counts them, so that both ends are exact."""
    number = iota(steps, device)
    exact = p.to_copy(number, dtype=compute_type(dtype))
    rising = p.add(p.mul(exact, step), start)
    falling = p.sub(end, p.mul(p.sub(steps - 1, exact), step))
    return cast(p.where(p.lt(number, steps // 2), rising, falling), dtype)


#: Whole numbers that are spaced here; a number below zero is an error for others.
SIGNED = frozenset((torch.int64, torch.int32, torch.int16, torch.int8))


def _whole_numbers(start: Any, end: Any, steps: int, dtype: torch.dtype, device: Any) -> Tensor:
    """What is cut off depends on the last bit, so it is eager's: each number is a product and a sum, rounded once."""
    first, last = _whole(start, dtype, device), _whole(end, dtype, device)
    if first is None or last is None:
        return NotImplemented
    if steps < 2:
        return cast(p.add(p.full([steps], 0, dtype=torch.float64, device=device), first), dtype)
    number = iota(steps, device)
    step = p.div(p.sub(last, first), steps - 1)
    rising = _rounded_once(first, step, number)
    falling = _rounded_once(last, p.neg(step), p.sub(steps - 1, number))
    return cast(p.where(p.lt(number, steps // 2), rising, falling), dtype)


def _whole(x: Any, dtype: torch.dtype, device: Any) -> Tensor | None:
    """An end in float64, its fraction cut off; None where eager refuses it, or its device spaces in other ways."""
    if dtype not in SIGNED or torch.device(device or "cpu").type != "cpu":
        return None
    if isinstance(x, Tensor):
        return p.trunc(cast(x, torch.float64))
    limits = torch.iinfo(dtype)
    if not isinstance(x, int | float) or not limits.min <= x <= limits.max:
        return None
    return p.full([], int(x), dtype=torch.float64, device=device)


def _rounded_once(start: Tensor, step: Tensor, number: Tensor) -> Tensor:
    """start + step * number: a step in two halves has exact products (Veltkamp), a sum an exact error (Knuth)."""
    wide = p.to_copy(number, dtype=torch.float64)
    split = p.mul(step, 2.0**27 + 1)
    upper = p.sub(split, p.sub(split, step))
    product, rest = p.mul(wide, upper), p.mul(wide, p.sub(step, upper))
    total = p.add(product, start)
    added = p.sub(total, start)
    error = p.add(p.sub(start, p.sub(total, added)), p.sub(product, added))
    return p.add(total, p.add(error, rest))


@decompose("logspace")
def logspace(start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None, **options: Any) -> Tensor:
    if steps == 1 and base > 0:  # eager's number has all its digits
        number = p.full([1], float(base) ** start, dtype=torch.float64, device=options.get("device"))
        return p.to_copy(number, dtype=dtype or torch.get_default_dtype())
    return _raised(linspace, start, end, steps, base, dtype or torch.get_default_dtype(), options)


@decompose("logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace_between(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, **options: Any
) -> Tensor:
    start, end = [_brought(x, options.get("device")) for x in (start, end)]
    return _raised(linspace_between, start, end, steps, base, dtype or torch.get_default_dtype(), options)


def _raised(powers: Any, start: Any, end: Any, steps: int, base: float, dtype: torch.dtype, options: Any) -> Tensor:
    """`base` to equally spaced powers; of whole numbers the ends are whole, the powers between are not."""
    device = options.get("device")
    wide = compute_type(dtype)
    if not dtype.is_floating_point:
        cut = [_whole(start, dtype, device), _whole(end, dtype, device)]
        if any(x is None for x in cut):
            return NotImplemented
        start, end = cut if steps > 1 else (start, end)
        powers, wide = linspace_between, torch.float64
    elif steps > 1 and torch.device(device or "cpu").type == "cpu":
        # Eager's ends, and their difference, are rounded; powers of doubles are taken from there.
        first, last = [_end(x, dtype, device) for x in (start, end)]
        way = cast(p.sub(last, first), torch.float64)
        start, end = [cast(x, torch.float64) for x in (first, last)]
        exponents = _spaced(start, end, p.div(way, steps - 1), steps, torch.float64, device)
        return cast(p.power(p.full([], base, dtype=torch.float64, device=device), exponents), dtype)
    exponents = powers(start, end, steps, dtype=wide, **options)
    return cast(p.power(p.full([], base, dtype=wide, device=device), exponents), dtype)


def _end(x: Any, dtype: torch.dtype, device: Any) -> Tensor:
    return cast(x, dtype) if isinstance(x, Tensor) else p.full([], x, dtype=dtype, device=device)


@decompose("empty_strided", also_complex=True)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    order = _order_of(size, stride)
    if order is not None:
        return empty_permuted(size, order, dtype=dtype, device=device)
    span = 1 + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
    dtype = dtype or torch.get_default_dtype()
    memory = p.full([0 if 0 in size else span], unwritten(dtype), dtype=dtype, device=device)
    return p.as_strided(memory, size, stride)


def _order_of(size: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """The order of dims in which a tensor with these strides is contiguous, if there is one.

    Then it needs no `as_strided`, and a write to all of it no position of each element.
    """
    order = list(range(len(size)))
    if not is_symbolic([*size, *stride]):
        order.sort(key=lambda d: -stride[d])
    plain = contiguous_strides([size[d] for d in order])
    alike = [size_of(stride[d]) == size_of(step) for d, step in zip(order, plain, strict=True)]
    return order if all(alike) else None


@decompose("empty_permuted", also_complex=True)
def empty_permuted(
    size: Sequence[int], order: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    memory = p.full([size[d] for d in order], unwritten(dtype), dtype=dtype, device=device)
    if list(order) == list(range(len(size))):
        return memory
    return p.permute(memory, [list(order).index(d) for d in range(len(size))])


@decompose("new_empty_strided", also_complex=True)
def new_empty_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    return empty_strided(size, stride, dtype=dtype or x.dtype, device=device or x.device)


@decompose("eye", also_complex=True)
def eye(n: int, **kwargs: Any) -> Tensor:
    return eye_m(n, n, **kwargs)


@decompose("eye.m", also_complex=True)
def eye_m(n: int, m: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    row = p.unsqueeze(iota(n, device), 1)
    column = iota(m, device)
    return cast(p.eq(row, column), dtype or torch.get_default_dtype())


@decompose("tril_indices")
def tril_indices(
    rows: int, columns: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    """Row i has columns 0 … i + offset."""
    outside = _steps(offset, columns)

    def before(row: Any) -> Any:
        return _steps(row + offset, columns) - outside

    return _places(rows, before, lambda row, at: at, dtype, device)


@decompose("triu_indices")
def triu_indices(
    rows: int, columns: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    """Row i lacks columns 0 … i + offset - 1."""
    outside = _steps(offset - 1, columns)

    def before(row: Any) -> Any:
        return row * columns - (_steps(row + offset - 1, columns) - outside)

    return _places(rows, before, lambda row, at: at + _within(row + offset, columns), dtype, device)


def _steps(count: Any, most: int) -> Any:
    """The sum of 1, 2, … over so many terms, none of them more than `most`; of an int, or of each of a tensor."""
    rising = _within(count, most)
    rest = count - most
    return rising * (rising + 1) // 2 + most * (p.clamp(rest, 0) if isinstance(rest, Tensor) else max(rest, 0))


def _within(x: Any, most: int) -> Any:
    return p.clamp(x, 0, most) if isinstance(x, Tensor) else min(max(x, 0), most)


def _places(rows: int, before: Any, column: Any, dtype: Any, device: Any) -> Tensor:
    """Rows and columns of elements in row-major order, of which `before` counts those in the rows before one."""
    dtype = dtype or torch.int64
    count = before(rows)
    if count == 0:
        return p.full([2, 0], 0, dtype=dtype, device=device)
    number = iota(count, device)
    ends = before(p.arange(1, rows + 1, 1, dtype=torch.int64, device=device))
    row = p.searchsorted(ends, number, right=True)
    return cast(p.cat([p.unsqueeze(x, 0) for x in (row, column(row, p.sub(number, before(row))))], 0), dtype)
