"""Shape rules of the views, whose results share the memory of their input, and of what replaces or copies a part.

Neighbours: as `rules.py`; views without a rule here run on the meta tensors (`execute.run_on_meta`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from stator.base.errors import DataDependent
from stator.fake.execute import aten, execute, plan_of, run_on_meta
from stator.fake.layout import (
    channels_last_strides,
    contiguous_strides,
    has_channels_last,
    is_plain,
    same,
    view_strides,
)
from stator.fake.overloads import overload
from stator.fake.rules import broadcast, like, read_at, rule, variants
from stator.fake.rules_refusing import check_along
from stator.fake.symbolic import is_symbolic
from stator.fake.tensor import FakeTensor, make, memory_of, with_pending


def view(x: FakeTensor, size: Sequence[int], stride: Sequence[int] | None, offset: Any = None) -> FakeTensor:
    """A view of `x` with another geometry."""
    if offset is None:
        offset = x.storage_offset()
    if stride is None and offset:
        stride = contiguous_strides(size)
    fake = make(size, x.dtype, x.device, stride, offset)
    fake.memory = memory_of(x)
    return with_pending(fake, x)


def resolve_size(numel: int, size: Sequence[int]) -> list[int] | None:
    """The size with -1 replaced; None if it does not fit."""
    known, unknown = 1, -1
    for i, extent in enumerate(size):
        if extent == -1:
            unknown = i
        else:
            known *= extent
    resolved = list(size)
    if unknown >= 0:
        if known == 0 or numel % known:
            return None
        resolved[unknown] = numel // known
        return resolved
    return resolved if known == numel else None


@rule(aten.view.default, aten._unsafe_view.default)
def _view(x: Any, size: Any) -> Any:
    resolved = resolve_size(x.numel(), size)
    if resolved is None or x.numel() == 0:
        return NotImplemented
    if is_plain(x):
        return view(x, resolved, None)
    stride = view_strides(x.shape, x.stride(), resolved)
    return NotImplemented if stride is None else view(x, resolved, stride)


@rule(aten.detach.default, aten.alias.default)
def _alias(x: Any) -> Any:
    return view(x, x.shape, x.stride())


@rule(aten.permute.default)
def _permute(x: Any, dims: Any) -> Any:
    if len(dims) != x.dim():
        return NotImplemented
    size, stride = x.shape, x.stride()
    return view(x, [size[dim] for dim in dims], [stride[dim] for dim in dims])


@rule(aten.t.default)
def _t(x: Any) -> Any:
    return view(x, x.shape[::-1], x.stride()[::-1]) if x.dim() == 2 else NotImplemented


@rule(aten.transpose.int)
def _transpose(x: Any, first: int, second: int) -> Any:
    if x.dim() == 0:
        return NotImplemented
    size, stride = list(x.shape), list(x.stride())
    size[first], size[second] = size[second], size[first]
    stride[first], stride[second] = stride[second], stride[first]
    return view(x, size, stride)


@rule(aten.expand.default)
def _expand(x: Any, size: Any, *, implicit: bool = False) -> Any:
    own_size, own_stride = x.shape, x.stride()
    lead = len(size) - len(own_size)
    if lead < 0:
        return NotImplemented
    full, stride = list(size), [0] * len(size)
    if not own_size:
        return view(x, full, stride) if -1 not in full else NotImplemented
    for i in range(len(size) - 1, -1, -1):
        if i >= lead:
            extent, step = own_size[i - lead], own_stride[i - lead]
        else:  # a dim that is new; of one element, it has the stride of a contiguous one
            extent, step = 1, full[i + 1] * stride[i + 1] if i + 1 < len(size) else 1
        if full[i] == extent or (full[i] == -1 and i >= lead):
            full[i], stride[i] = extent, step
        elif extent != 1:
            return NotImplemented
    return view(x, full, stride) if -1 not in full else NotImplemented


@rule(aten.unsqueeze.default)
def _unsqueeze(x: Any, dim: int) -> Any:
    size, stride = list(x.shape), list(x.stride())
    dim %= len(size) + 1
    step = size[dim] * stride[dim] if dim < len(size) else 1
    return view(x, [*size[:dim], 1, *size[dim:]], [*stride[:dim], step, *stride[dim:]])


@rule(aten.select.int)
def _select(x: Any, dim: int, index: int) -> Any:
    size, stride = list(x.shape), list(x.stride())
    if not size or not -len(size) <= dim < len(size) or not -size[dim] <= index < size[dim]:
        return NotImplemented
    offset = x.storage_offset() + stride[dim] * (index % size[dim])
    del size[dim], stride[dim]
    return view(x, size, stride, offset)


def _clamped(index: int, size: int) -> int:
    """The index of a slice, counted from the start."""
    if index < 0:
        index = index + size
        return 0 if index < 0 else index
    return size if index > size else index


@rule(aten.slice.Tensor)
def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    size, stride = list(x.shape), list(x.stride())
    if not size or step <= 0:
        return NotImplemented
    first, last = _clamped(0 if start is None else start, size[dim]), size[dim]
    if end is not None and not (isinstance(end, int) and end == sys.maxsize):
        last = _clamped(end, size[dim])
    offset = x.storage_offset() + first * stride[dim]
    size[dim] = 0 if last <= first else (last - first + step - 1) // step
    stride[dim] *= step
    return view(x, size, stride, offset)


@rule(aten.split.Tensor)
def _split(x: Any, extent: int, dim: int = 0) -> Any:
    if x.dim() == 0 or extent <= 0:
        return NotImplemented
    size = x.shape[dim]
    # How many parts there are is a number.
    count = max(1, int((size + extent - 1) // extent))
    return [_slice(x, dim, i * extent, (i + 1) * extent if i < count - 1 else size) for i in range(count)]


@rule(aten.split_with_sizes.default)
def _split_with_sizes(x: Any, extents: Any, dim: int = 0) -> Any:
    if x.dim() == 0 or sum(extents) != x.shape[dim] or any(extent < 0 for extent in extents):
        return NotImplemented
    parts, start = [], 0
    for extent in extents:
        parts.append(_slice(x, dim, start, start + extent))
        start = start + extent
    return parts


@rule(aten.diagonal.default)
def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    size, stride = list(x.shape), list(x.stride())
    dims = sorted((dim1 % len(size), dim2 % len(size))) if size else [0, 0]
    if dims[0] == dims[1] or max(dim1, dim2) >= len(size) or min(dim1, dim2) < -len(size) or offset:
        return NotImplemented
    first, second = dims
    extent, step = torch.sym_min(size[first], size[second]), stride[first] + stride[second]
    kept = [dim for dim in range(len(size)) if dim not in dims]
    return view(x, [*[size[dim] for dim in kept], extent], [*[stride[dim] for dim in kept], step])


@rule(aten.diagonal_copy.default)
def _diagonal_copy(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    seen = _diagonal(x, offset, dim1, dim2)
    return seen if seen is NotImplemented else make(seen.shape, x.dtype, x.device)


@rule(aten.diag_embed.default)
def _diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Zeros with the last dim as a diagonal of two."""
    count = x.dim() + 1
    if not x.dim() or not all(-count <= dim < count for dim in (dim1, dim2)) or dim1 % count == dim2 % count:
        return NotImplemented
    *size, extent = x.shape
    for dim in sorted((dim1 % count, dim2 % count)):
        size.insert(dim, extent + abs(offset))
    return make(size, x.dtype, x.device)


@rule(aten.unfold_backward.default)
def _folded(grad: Any, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    return make(tuple(input_sizes), grad.dtype, grad.device)


@rule(aten.unfold.default)
def _unfold(x: Any, dim: int, extent: int, step: int) -> Any:
    size, stride = list(x.shape), list(x.stride())
    if not size or step <= 0 or not 0 <= extent <= size[dim]:
        return NotImplemented
    size[dim], stride[dim], inner = (size[dim] - extent) // step + 1, stride[dim] * step, stride[dim]
    return view(x, [*size, extent], [*stride, inner])


@rule(aten.unbind.int)
def _unbind(x: Any, dim: int = 0) -> Any:
    if not x.dim():
        return NotImplemented
    dim %= x.dim()
    size, stride = list(x.shape), list(x.stride())
    count, step = int(size.pop(dim)), stride.pop(dim)  # how many pieces there are is a number
    return [view(x, size, stride, x.storage_offset() + i * step) for i in range(count)]


# ---- values of one tensor replaced by another's ----------------------------------------------------------------------


def _preserving(op: Any, part: Any) -> None:
    @rule(op)
    def preserved(x: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        """With the strides of `x`, holes and dims of one element included; packed where elements share memory."""
        place = execute(part, (x, *args), kwargs).shape
        if not is_symbolic([*place, *source.shape]) and place != source.shape:
            raise RuntimeError(
                "expected src to have a size equal to the slice of self. "
                f"src size = {list(source.shape)}, slice size = {list(place)}"
            )
        return _like_operand(x)


def _repeats(x: Any) -> bool:
    """Whether eager knows that two elements are one: it looks for strides of 0."""
    return any(n != 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))


def _like_operand(x: Any) -> Any:
    """Eager copies the memory of the operand and gives the copy the same strides, if no two elements are one."""
    if _repeats(x):
        return like(x, None, None, None)
    return make(x.shape, x.dtype, x.device, None if is_plain(x) else tuple(x.stride()))


@rule(aten.as_strided_scatter.default)
def _as_strided_scatter(x: Any, source: Any, size: Any, stride: Any, offset: Any = None) -> Any:
    if _repeats(x):
        return NotImplemented
    return _like_operand(x) if same(size, source.shape) else NotImplemented


_preserving(aten.slice_scatter.default, aten.slice.Tensor)
_preserving(aten.select_scatter.default, aten.select.int)
_preserving(aten.diagonal_scatter.default, aten.diagonal.default)


@rule(
    *variants(
        "fill zero copy log_sigmoid_backward",
        "default src value two Scalar Tensor",
    )
)
def _packed_like_first(x: Any, *args: Any, **kwargs: Any) -> Any:
    return like(x, None, None, None) if isinstance(x, FakeTensor) and x.is_contiguous() else NotImplemented


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    if index.dim() > 1:
        raise IndexError("index_fill_(): Index is supposed to be a vector")
    if isinstance(value, FakeTensor) and value.dim():
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got one of {value.dim()} dims")
    return like(x, None, None, None)


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    try:
        place = read_at(x, indices)
    except DataDependent:
        place = NotImplemented
    plain = place is not NotImplemented and not is_symbolic([*place.shape, *values.shape])
    if plain and broadcast([place, values]) != tuple(place.shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result "
            f"of shape {list(place.shape)}"
        )
    return like(x, None, None, None)


def _written_along(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Contiguous. PyTorch's shape functions compare the sizes of all operands, and take numbers only."""
    fakes = [arg for arg in (x, *args) if isinstance(arg, FakeTensor)]
    if not any(fake._has_symbolic_sizes_strides for fake in fakes):
        run_on_meta(func, plan_of(func), (x, *args), kwargs)
    return make(x.shape, x.dtype, x.device)


for _func in map(overload, variants("scatter scatter_add scatter_reduce", "default src value two")):
    if _func is not None:
        rule(_func)(partial(_written_along, _func))


@rule(aten.index_copy.default)
def _index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    """PyTorch 2.11's shape function looks at less; it alone knows when a number may stand for a row of one."""
    if x.dim() and source.dim():
        check_along("index_copy", x, dim, index, source)
    return _written_along(aten.index_copy.default, x, dim, index, source)


@rule(aten.index_add.default)
def _index_add(x: Any, dim: int, index: Any, source: Any, **kwargs: Any) -> Any:
    check_along("index_add", x, dim, index, source)
    return _written_along(aten.index_add.default, x, dim, index, source, **kwargs)


@rule(aten.roll.default)
def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    """PyTorch's shape function forgets the layout; on the host two parts are joined in that which both suggest."""
    if not dims and not (x.dim() == 1 and 0 in tuple(x.shape)):  # as one row
        return make(x.shape, x.dtype, x.device)
    if x.device.type != "cpu":
        return _packed_like_first(x)
    size, stride = tuple(x.shape), tuple(x.stride())
    if not size or 0 in size:
        return like(x, None, None, None)
    for shift, dim in zip(shifts, dims, strict=False):
        first = (size[dim] - shift) % size[dim] if len(size) in (4, 5) else 0
        parts = [(*size[: dim % len(size)], n, *size[dim % len(size) + 1 :]) for n in (size[dim] - first, first)]
        last = all(has_channels_last(part, stride) for part in parts)
        stride = channels_last_strides(size) if last else contiguous_strides(size)
    return make(size, x.dtype, x.device, stride)


@rule(aten.flip.default)
def _flip(x: Any, dims: Any) -> Any:
    return like(x, None, None, None) if len({d % max(x.dim(), 1) for d in dims}) == len(dims) else NotImplemented


@rule(aten.rot90.default)
def _turned(x: Any, turns: int = 1, dims: Any = (0, 1)) -> Any:
    """Flipped, and transposed where it stands on its side."""
    if len(dims) != 2 or x.dim() < 2 or (dims[0] - dims[1]) % x.dim() == 0:
        return NotImplemented
    if turns % 4 == 0:
        return make(x.shape, x.dtype, x.device)
    flipped = like(x, None, None, None)
    if turns % 2 == 0:
        return flipped
    turned = _transpose(flipped, *dims)
    return make(turned.shape, x.dtype, x.device, turned.stride())


@rule(aten.view_copy.default)
def _view_copy(x: Any, size: Sequence[int]) -> Any:
    """Of any layout: what cannot be viewed is copied before."""
    plain = make(x.shape, x.dtype, x.device)
    return make(execute(aten.view.default, (plain, size), {}).shape, x.dtype, x.device)
