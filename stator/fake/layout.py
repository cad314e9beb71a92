"""Dtypes and strides of results, as PyTorch's own iterator chooses them.

`promote` is type promotion (dimensioned tensors before 0-d tensors before numbers), `elementwise_strides` is the
permutation that TensorIterator picks for a fresh result, `dense_like` is `memory_format=preserve`.
All are pure functions of metadata. Neighbours: `rules.py` and `aot` use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import torch

from stator.fake.symbolic import size_of
from stator.sizes.strides import contiguous

Size = tuple[int, ...]

_CATEGORY: dict[torch.dtype, int] = {
    torch.bool: 0,
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), 1),
    **dict.fromkeys((torch.uint16, torch.uint32, torch.uint64), 1),
    **dict.fromkeys((torch.float64, torch.float32, torch.float16, torch.bfloat16), 2),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), 3),
}

#: What a float becomes beside a complex number of lower priority; complex64 for the others.
_COMPLEX_OF = {torch.float64: torch.complex128, torch.float16: torch.complex32}
#: Dtypes that no kernel of ours computes on.
OPAQUE_DTYPES = frozenset(
    getattr(torch, name)
    for name in "complex128 complex64 complex32 uint64 uint32 uint16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
    "float8_e5m2fnuz float8_e8m0fnu".split()
)


def is_float(dtype: torch.dtype) -> bool:
    """Whether a dtype is floating or complex, so that float functions keep it."""
    return _CATEGORY.get(dtype, 2) >= 2


def _number_dtype(number: Any) -> torch.dtype:
    match number:
        case bool():
            return torch.bool
        case int() | torch.SymInt():
            return torch.int64
        case complex():
            return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
        case _:
            return torch.get_default_dtype()


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """The dtype of operands of which `higher` decides unless `lower` is of a higher category."""
    if higher is None or lower is None:
        return higher or lower
    high, low = _CATEGORY.get(higher, 2), _CATEGORY.get(lower, 2)
    if high == 2 and low == 3:
        return _COMPLEX_OF.get(higher, torch.complex64)
    return higher if high >= low and high != 0 else torch.promote_types(higher, lower)


def _promoted(known: torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    return dtype if known is None or known is dtype else torch.promote_types(known, dtype)


def promote(operands: Sequence[Any]) -> torch.dtype:
    """The dtype in which tensors and numbers meet."""
    tensors: torch.dtype | None = None
    scalars: torch.dtype | None = None
    numbers: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            if operand.dim():
                tensors = _promoted(tensors, operand.dtype)
            else:
                scalars = _promoted(scalars, operand.dtype)
        elif operand is not None:
            numbers = _promoted(numbers, _number_dtype(operand))
    dtype = _combine(tensors, _combine(scalars, numbers))
    assert dtype is not None
    return dtype


def contiguous_strides(size: Sequence[int]) -> Size:
    """Row-major strides."""
    strides, step = [], 1
    for extent in reversed(size):
        strides.append(step)
        step *= torch.sym_max(extent, 1)
    return tuple(reversed(strides))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the strides are those of a fresh contiguous tensor, also of dims with one element or none."""
    if not tensor._has_symbolic_sizes_strides:
        return tensor.stride() == contiguous(tensor.shape)
    expected: Any = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size_of(stride) != size_of(expected):
            return False
        expected = expected * torch.sym_max(extent, 1)
    return True


def is_contiguous(tensor: torch.Tensor) -> bool:
    """`tensor.is_contiguous()`; asks nothing of sizes whose strides are written as those of a contiguous tensor."""
    if not tensor._has_symbolic_sizes_strides:
        return tensor.is_contiguous()
    expected: Any = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size_of(stride) != size_of(expected):
            return tensor.is_contiguous()
        expected = expected * extent
    return True


def is_nothing(size: Sequence[int]) -> bool:
    """Whether a dim is known to have no element; nothing is asked of symbols."""
    return any(type(n) is int and n == 0 for n in size)


def same(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are equal; sizes are only compared where there are as many of them."""
    return len(a) == len(b) and tuple(a) == tuple(b)


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill their span without gaps or overlaps, in any order of the dimensions."""
    if 0 in size:  # nothing, as eager has it
        return True
    expected = 1
    steps = [(step, extent) for step, extent in zip(stride, size, strict=True) if extent != 1]
    for step, extent in sorted(steps, key=itemgetter(0)):
        if step != expected:
            return False
        expected *= extent
    return True


def elementwise_strides(size: Size, tensors: Sequence[torch.Tensor], alone: bool = True) -> Size | None:
    """The strides of a fresh elementwise result of this size; None is contiguous.

    Beside a number they are not `alone`: that is one more operand, of another size.
    """
    full = [tensor for tensor in tensors if same(tensor.shape, size)]
    if len(full) == len(tensors) and (alone or not size):
        if all(map(is_contiguous, full)):
            return None
        if len(size) == 4 and all(t.is_contiguous(memory_format=torch.channels_last) for t in full):
            return channels_last_strides(size)
        stride = full[0].stride()
        if all(tensor.stride() == stride for tensor in full) and is_dense(size, stride):
            return stride
    if all(map(is_plain, tensors)) and len(full) > 0 and not is_nothing(size):
        return None
    operands = [broadcast_strides(size, tensor.shape, tensor.stride()) for tensor in tensors]
    return permuted_strides(size, operands, 0)


def channels_last_strides(size: Sequence[int]) -> Size:
    """Strides of a batch of images (or volumes) with the channel innermost."""
    order = [0, *range(2, len(size)), 1]
    strides = [0] * len(size)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= size[dim]
    return tuple(strides)


def suggests_channels_last(x: torch.Tensor) -> bool:
    """Whether kernels that go by a suggested format take these images (or volumes) to have the channel innermost."""
    return has_channels_last(x.shape, x.stride())


def has_channels_last(size: Sequence[int], stride: Sequence[int]) -> bool:
    """The same of a geometry."""
    if len(size) not in (4, 5):
        return False
    least = 0
    for dim in (1, *range(len(size) - 1, 1, -1), 0):
        extent, step = size[dim], stride[dim]
        if extent == 0 or step < least or (dim == 1 and step == 0) or (dim == 0 and least == stride[1]):
            return False
        least = step * torch.sym_max(extent, 1)
    return True


def dense_like(size: Size, stride: Size) -> Size:
    """The strides of a copy that preserves the layout: equal if dense, else the same order of dimensions, packed."""
    if is_dense(size, stride):
        return stride
    return permuted_strides(size, [stride])


def broadcast_strides(size: Size, shape: Sequence[int], stride: Sequence[int]) -> Size:
    """The strides of an operand along the dims of a result, 0 where it repeats."""
    lead = len(size) - len(shape)
    steps = zip(shape, stride, size[lead:], strict=True)
    return (0,) * lead + tuple(0 if extent == 1 and full != 1 else step for extent, step, full in steps)


def view_strides(size: Sequence[int], stride: Sequence[int], target: Sequence[int]) -> list[int] | None:
    """The strides with which the elements have another shape without moving; None if they must move."""
    result = [0] * len(target)
    position = len(target) - 1
    base = stride[-1] if stride else 1
    chunk = covered = 1
    for dim in range(len(size) - 1, -1, -1):
        chunk *= size[dim]
        # A chunk ends where the next dimension outwards does not continue it.
        if dim and (size[dim - 1] == 1 or stride[dim - 1] == chunk * base):
            continue
        while position >= 0 and (covered < chunk or target[position] == 1):
            result[position] = covered * base
            covered *= target[position]
            position -= 1
        if covered != chunk:
            return None
        if dim:
            base, chunk, covered = stride[dim - 1], 1, 1
    while position >= 0:
        result[position] = covered * base
        covered *= target[position]
        position -= 1
    return result if covered == chunk else None


def permuted_strides(size: Size, operands: Sequence[Size], least: int = 1) -> Size:
    """Pack the dimensions in the order of the operands' strides; ties and broadcasts keep row-major order.

    A dimension without elements counts as `least`: the iterator of elementwise operators has strides of 0 above it.
    """
    order = list(range(len(size)))[::-1]
    for i in range(1, len(order)):
        current = i
        for earlier in range(i - 1, -1, -1):
            comparison = _compare(size, operands, order[earlier], order[current])
            if comparison > 0:
                order[earlier], order[current] = order[current], order[earlier]
                current = earlier
            elif comparison < 0:
                break
    if order == list(range(len(size)))[::-1]:
        return contiguous_strides(size)
    strides, step = [0] * len(size), 1
    for dim in order:
        strides[dim] = step
        step *= torch.sym_max(size[dim], least)
    return tuple(strides)


def _compare(size: Size, operands: Sequence[Size], first: int, second: int) -> int:
    for strides in operands:
        a, b = strides[first], strides[second]
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if size[first] > size[second]:
            return 1
    return 0
