"""Reductions and scans along an axis, and what is made of them: sums, extremes, sorting, histograms.

A combine function, of the kernel or of this file, becomes the region of one operation. Several operands are combined
together. What is summed in which dtype is Triton's rule: small integers as 32 bits, bfloat16 extremes as fp32.
Neighbours: `shapes.py`, `arithmetic.py`; the front end calls the kernel's combine functions (`Context.call`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.ir.rules import TypeRule
from stator.tile.language import math
from stator.tile.language.arithmetic import (
    add,
    compare,
    logical_and,
    logical_or,
    maximum,
    minimum,
    minus,
    mul,
    or_,
    truediv,
    where,
    xor,
)
from stator.tile.language.context import active, emit, emit_all
from stator.tile.language.promotion import broadcast_to, cast_to, to_tensor
from stator.tile.language.shapes import (
    arange,
    broadcast_tensors,
    expand_dims,
    permute,
    ravel,
    reshape,
    split,
    wrap_axis,
)
from stator.tile.language.static import unwrap
from stator.tile.language.types import as_dtype, bfloat16, block_type, dtype, float32, int1, int32, uint32
from stator.tile.language.values import sequence, tensor, tuple


def _region(combine: Any, operands: Sequence[tensor]) -> Any:
    """The region of a combine function: two elements of each operand to one of each."""
    context = active()
    types = [operand.dtype for operand in operands]

    def body(*handles: Any) -> list[Any]:
        given = [tensor(handle, type) for handle, type in zip(handles, [*types, *types], strict=True)]
        results = [to_tensor(item) for item in sequence(context.call(combine, given))]
        if len(results) != len(types):
            raise InvalidUse(f"the combine function gives {len(results)} values, and there are {len(types)} operands")
        for result, type in zip(results, types, strict=True):
            if result.type != type:
                raise InvalidUse(f"the combine function gives {result.type} for an operand of {type}")
        return [result.handle for result in results]

    try:
        return context.builder.region([each for type in [*types, *types] for each in type.handle_types()], body)
    except TypeRule as error:
        raise InvalidUse(str(error)) from error


def _operands(input: Any) -> list[tensor]:
    operands = broadcast_tensors(*sequence(input))
    if not operands[0].type.shape:
        raise InvalidUse("a number has no axis to go along", "reductions and scans take blocks")
    return operands


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [size for place, size in enumerate(shape) if place != axis]


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """All elements along an axis, or all there are if it is None, combined in some order."""
    operands = _operands(input)
    rank = len(operands[0].type.shape)
    whole = unwrap(axis) is None
    if whole:
        operands = [ravel(operand) for operand in operands]
    place = 0 if whole else wrap_axis(axis, rank)
    handles = emit_all("reduce", operands, [_region(combine_fn, operands)], axis=place)
    shape = _without(operands[0].type.shape, place)
    results = []
    for handle, operand in zip(handles, operands, strict=True):
        result = tensor(handle, block_type(operand.dtype, shape) if shape else operand.dtype)
        if unwrap(keep_dims):
            result = expand_dims(result, list(range(rank)) if whole else place)
        results.append(result)
    return tuple(results) if isinstance(input, tuple | builtins.tuple | list) else results[0]


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Each element along an axis combined with all before it, or all behind it if `reverse`."""
    operands = _operands(input)
    place = wrap_axis(axis, len(operands[0].type.shape))
    region = _region(combine_fn, operands)
    handles = emit_all("scan", operands, [region], axis=place, reverse=bool(unwrap(reverse)))
    results = [tensor(handle, operand.type) for handle, operand in zip(handles, operands, strict=True)]
    return tuple(results) if isinstance(input, tuple | builtins.tuple | list) else results[0]


# ---- sums


def _sum_type(given: dtype, asked: Any) -> dtype:
    """What is summed in: integers of less than 32 bits as 32."""
    if unwrap(asked) is not None:
        return as_dtype(asked)
    if given.is_int() and given.int_bitwidth < 32:
        return int32 if given.is_int_signed() else uint32
    return given


def _wider_bfloat16(value: tensor) -> tensor:
    return cast_to(value, float32) if value.dtype == bfloat16 else value


def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> Any:
    """The sum along an axis, or of all elements."""
    return reduce(cast_to(input, _sum_type(input.dtype, dtype)), axis, add, keep_dims)


def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> Any:
    """The sums so far along an axis."""
    value = _wider_bfloat16(input)
    return associative_scan(cast_to(value, _sum_type(value.dtype, dtype)), axis, add, reverse)


def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> Any:
    """The products so far along an axis."""
    return associative_scan(_wider_bfloat16(input), axis, mul, reverse)


def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> Any:
    """The bits that an odd number of elements has."""
    return _bitwise("xor_sum", input, axis, keep_dims, xor)


def reduce_or(input: Any, axis: Any, keep_dims: Any = False) -> Any:
    """The bits that some element has."""
    return _bitwise("reduce_or", input, axis, keep_dims, or_)


def _bitwise(what: str, input: Any, axis: Any, keep_dims: Any, combine: Callable[..., Any]) -> Any:
    if not input.dtype.is_int():
        raise InvalidUse(f"{what} takes integers, not {input.dtype}")
    return reduce(input, axis, combine, keep_dims)


# ---- extremes


def _positioned(op: str, left: bool) -> Callable[..., Any]:
    """Combines pairs of a value and its position: the better value's; of equal ones the one further left."""

    def combine(value_a: tensor, index_a: tensor, value_b: tensor, index_b: tensor) -> Any:
        first = compare(op, value_a, value_b)
        if left:
            tie = logical_and(compare("eq", value_a, value_b), compare("lt", index_a, index_b))
            first = logical_or(first, tie)
        return tuple([where(first, value_a, value_b), where(first, index_a, index_b)])

    return combine


def _with_positions(input: tensor, axis: Any, op: str, left: Any, keep_dims: Any) -> Any:
    rank = len(input.type.shape)
    value = ravel(input) if unwrap(axis) is None else input
    place = 0 if unwrap(axis) is None else wrap_axis(axis, rank)
    shape = value.type.shape
    row = arange(0, shape[place]) if shape[place] > 1 else expand_dims(to_tensor(0), 0)
    if len(shape) > 1:
        row = expand_dims(row, [other for other in range(len(shape)) if other != place])
    pair = tuple([value, broadcast_to(row, shape)])
    best, index = reduce(pair, place, _positioned(op, bool(unwrap(left))), keep_dims)
    if unwrap(axis) is None and unwrap(keep_dims):
        best, index = [reshape(item, [1] * rank) for item in (best, index)]
    return tuple([best, index])


def _extreme(input: Any, axis: Any, op: str, flags: tuple, combine: Callable[..., Any]) -> Any:
    with_indices, left, keep_dims = flags
    value = _wider_bfloat16(input)
    if unwrap(with_indices):
        return _with_positions(value, axis, op, left, keep_dims)
    if value.dtype.primitive_bitwidth < 32:
        value = cast_to(value, float32 if value.dtype.is_floating() else int32)
    return reduce(value, axis, combine, keep_dims)


def max(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The greatest element along an axis, or of all; with `return_indices` also where it is."""
    return _extreme(input, axis, "gt", tuple([return_indices, return_indices_tie_break_left, keep_dims]), maximum)


def min(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The least element along an axis, or of all; with `return_indices` also where it is."""
    return _extreme(input, axis, "lt", tuple([return_indices, return_indices_tie_break_left, keep_dims]), minimum)


def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """Where the greatest element along an axis is."""
    return max(input, axis, True, tie_break_left, keep_dims)[1]


def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """Where the least element along an axis is."""
    return min(input, axis, True, tie_break_left, keep_dims)[1]


# ---- functions of whole rows


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return truediv(1, add(1, math.exp(minus(to_tensor(x)))))


def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> Any:
    """exp(x) by its sum along a dim, the first if none is said."""
    axis = 0 if unwrap(dim) is None else dim
    powers = math.exp(x - max(x, axis, keep_dims=True))
    return math.fdiv(powers, sum(powers, axis, keep_dims=True), ieee_rounding)


# ---- order


def sort(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """The elements along a dim in order, the last if none is said; NaN counts as the greatest."""
    value = to_tensor(x)
    axis = wrap_axis(-1 if unwrap(dim) is None else dim, len(value.type.shape))
    return emit("sort", value, axis=axis, descending=bool(unwrap(descending)))


def topk(x: Any, k: Any, dim: Any = None) -> tensor:
    """The `k` greatest elements along the last dim, the greatest first."""
    value = to_tensor(x)
    shape, count = value.type.shape, unwrap(k)
    axis = wrap_axis(-1 if unwrap(dim) is None else dim, len(shape))
    if axis != len(shape) - 1:
        raise InvalidUse("topk goes along the last dim", "permute the block first")
    if not 1 <= count <= shape[-1] or count & (count - 1):
        raise InvalidUse(f"topk gives a power of 2 of elements, at most {shape[-1]}, and not {count}")
    value = sort(value, axis, True)
    while value.type.shape[-1] > count:
        size = value.type.shape[-1] // 2
        rank = len(shape)
        halves = permute(reshape(value, [*shape[:-1], 2, size]), [*range(rank - 1), rank, rank - 1])
        value = split(halves)[0]
    return value


def bitonic_merge(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """A bitonic sequence along the last dim in order."""
    return sort(x, dim, descending)


def flip(x: Any, dim: Any = None) -> tensor:
    """The elements along a dim the other way round, the last if none is said."""
    value = to_tensor(x)
    shape = value.type.shape
    axis = wrap_axis(-1 if unwrap(dim) is None else dim, len(shape))
    if shape[axis] == 1:
        return value
    index = shape[axis] - 1 - arange(0, shape[axis])
    if len(shape) > 1:
        index = expand_dims(index, [other for other in range(len(shape)) if other != axis])
    return emit("gather", value, broadcast_to(index, shape), axis=axis, type=value.type)


def histogram(input: Any, num_bins: Any, mask: Any = None) -> tensor:
    """How often each of 0 … num_bins-1 occurs, where the mask holds."""
    if len(input.type.shape) != 1 or not input.dtype.is_int():
        raise InvalidUse(f"histogram takes a row of integers, not {input.type}")
    operands = [input]
    if unwrap(mask) is not None:
        given = to_tensor(mask)
        if not given.dtype.is_bool():
            raise InvalidUse(f"a mask is int1, not {given.dtype}", "compare: `mask != 0`")
        operands.append(broadcast_to(cast_to(given, int1), input.type.shape))
    bins = unwrap(num_bins)
    return emit("histogram", *operands, bins=bins, type=block_type(int32, [bins]))
