"""Indexing: lookups reduce to `index.Tensor`, `index_select` and `gather`, writes to `index_put`, `scatter.src` and
`scatter_add`. Only `index.Tensor` and `index_put` count negative positions from the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.base.device import HOST
from stator.fake.layout import promote
from stator.prims import names as p
from stator.prims.decompositions.layout import contiguous, flat, iota, iota_along, packed, reshaped
from stator.prims.dtypes import cast, common_type, compute_type, is_one
from stator.prims.table import decompose


@decompose("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding: int = -1, scale_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    if indices.dim() == 1:
        return p.index_select(weight, 0, indices)
    return p.view(p.index_select(weight, 0, flat(indices)), [*indices.shape, weight.shape[1]])


@decompose("index_select", also_complex=True)
def index_select(x: Tensor, dim: int, positions: Tensor) -> Tensor:
    if x.dim() == 0:
        return p.clone(x)
    return p.index_select(x, dim, p.unsqueeze(positions, 0)) if positions.dim() == 0 else NotImplemented


@decompose("_unsafe_index.Tensor", also_complex=True)
def unsafe_index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return p.index(x, indices)


@decompose("_unsafe_index_put")
def unsafe_index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    return p.index_put(x, indices, values, accumulate)


@decompose("index_put")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A single mask over the first dims, with the same values wherever it is true, is a `where`."""
    if _are_away(x, indices):
        return p.index_put(x, _brought(x, indices), values, accumulate)
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype is not torch.bool or values.dtype is not x.dtype:
        return NotImplemented
    rest = x.dim() - mask.dim()
    if not _same_everywhere(values.shape, rest):
        return NotImplemented
    value = p.squeeze(values, [0]) if values.dim() > rest else values
    for _ in range(rest):
        mask = p.unsqueeze(mask, -1)
    return p.where(mask, p.add(x, value) if accumulate else value, x)


def _are_away(x: Tensor, positions: Sequence[Tensor | None]) -> bool:
    """Whether positions of the host are used on another device, which kernels there cannot read."""
    return x.device.type != HOST and any(i is not None and i.device.type == HOST for i in positions)


def _brought(x: Tensor, positions: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Positions on the device of what they are used on, as eager brings them there."""
    return [i if i is None or i.device.type != HOST else p.to_copy(i, device=x.device) for i in positions]


def _same_everywhere(size: Sequence[int], rest: int) -> bool:
    """Whether values of this size are the same for all elements of a mask that leaves so many dims."""
    return len(size) <= rest or (len(size) == rest + 1 and type(size[0]) is int and size[0] == 1)


@decompose("index.Tensor")
def index(x: Tensor, positions: Sequence[Tensor | None]) -> Tensor:
    """What a mask selects is as long as the mask has true elements; as a gradient of values it is known how many."""
    if _are_away(x, positions):
        return p.index(x, _brought(x, positions))
    mask = positions[0] if len(positions) == 1 else None
    wanted = _size_of_values() if mask is not None and mask.dtype is torch.bool else None
    if mask is None or wanted is None or x.numel() == 0:
        return NotImplemented
    rest = x.dim() - mask.dim()
    rows = reshaped(x, [-1, *x.shape[mask.dim() :]])
    if _same_everywhere(wanted, rest):  # it will be summed over the selected ones, and zeros do no harm
        return p.where(reshaped(mask, [-1, *[1] * rest]), rows, 0)
    return p.index_select(rows, 0, p.squeeze(_nonzeros(reshaped(mask, [-1]), wanted[0], -1), [1]))


def _size_of_values() -> Sequence[int] | None:
    """The size of the values whose gradient autograd is computing, if they were put at positions."""
    node = torch._C._current_autograd_node()
    if node is None or node.name() != "IndexPutBackward0":
        return None
    values, output = node.next_functions[1]
    return None if values is None else tuple(values._input_metadata[output].shape)


@decompose("scatter.value")
def scatter_value(x: Tensor, dim: int, positions: Tensor, value: float) -> Tensor:
    return p.scatter(x, dim, positions, _filled(positions, value, x))


def _filled(positions: Tensor, value: float, like: Tensor) -> Tensor:
    return p.full(list(positions.shape), value, dtype=like.dtype, device=like.device)


@decompose("scatter.reduce")
def scatter_combined(x: Tensor, dim: int, positions: Tensor, source: Tensor, *, reduce: str) -> Tensor:
    return p.scatter_reduce(x, dim, positions, source, {"add": "sum", "multiply": "prod"}[reduce])


@decompose("scatter.value_reduce")
def scatter_value_combined(x: Tensor, dim: int, positions: Tensor, value: float, *, reduce: str) -> Tensor:
    return scatter_combined(x, dim, positions, _filled(positions, value, x), reduce=reduce)


def _neutral(reduce: str, dtype: torch.dtype) -> float:
    """What a reduction starts with."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    highest = reduce == "amin"
    if dtype.is_floating_point:
        return math.inf if highest else -math.inf
    if dtype is torch.bool:
        return highest
    return torch.iinfo(dtype).max if highest else torch.iinfo(dtype).min


def _averaged(total: Tensor, counts: Tensor) -> Tensor:
    """The sums over their counts, where none counts as one; whole numbers are rounded down, as eager does here."""
    counts = p.where(p.eq(counts, 0), 1, counts)
    return p.div(total, counts) if total.is_floating_point() else p.div_mode(total, counts, rounding_mode="floor")


@decompose("scatter_reduce.two")
def scatter_reduce(
    x: Tensor, dim: int, positions: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """What is left is a product or an extreme that takes `x` along."""
    if not include_self:
        counts = p.full_like(x, 0)
        x = p.scatter(x, dim, positions, _filled(positions, _neutral(reduce, x.dtype), x))
        if reduce != "mean":
            return p.scatter_reduce(x, dim, positions, source, reduce)
    elif reduce == "mean":
        counts = p.full_like(x, 1)
    else:
        return p.scatter_add(x, dim, positions, source) if reduce == "sum" else NotImplemented
    counts = p.scatter_add(counts, dim, positions, p.full_like(source, 1))
    return _averaged(p.scatter_add(x, dim, positions, source), counts)


@decompose("index_reduce")
def index_reduce(
    x: Tensor, dim: int, positions: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not include_self:
        counts = p.full_like(x, 0)
        x = index_fill(x, dim, positions, _neutral(reduce, x.dtype))
        if reduce != "mean":
            return p.index_reduce(x, dim, positions, source, reduce)
    elif reduce == "mean":
        counts = p.full_like(x, 1)
    else:
        return NotImplemented
    counts = p.index_add(counts, dim, positions, p.full_like(source, 1))
    return _averaged(p.index_add(x, dim, positions, source), counts)


@decompose("index_add")
def index_add(x: Tensor, dim: int, positions: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    if is_one(alpha):
        return NotImplemented
    return p.index_add(x, dim, positions, p.mul(source, bool(alpha) if x.dtype is torch.bool else alpha))


@decompose("index_fill.int_Scalar")
def index_fill(x: Tensor, dim: int, positions: Tensor, value: float) -> Tensor:
    return index_fill_tensor(x, dim, positions, p.full([], value, dtype=x.dtype, device=x.device))


@decompose("index_fill.int_Tensor")
def index_fill_tensor(x: Tensor, dim: int, positions: Tensor, value: Tensor) -> Tensor:
    positions = p.unsqueeze(positions, 0) if positions.dim() == 0 else positions
    if x.dim() == 0:
        return p.view(index_fill_tensor(p.view(x, [1]), 0, positions, value), [])
    return p.index_put(x, [*[None] * (dim % x.dim()), positions], p.view(cast(value, x.dtype), []), False)


@decompose("bucketize.Tensor")
def bucketize(x: Tensor, ordered: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return p.searchsorted(ordered, x, out_int32=out_int32, right=right)


@decompose("searchsorted.Scalar")
def searchsorted_number(ordered: Tensor, x: float, **options: Any) -> Tensor:
    if common_type(ordered, x) is not ordered.dtype:
        return NotImplemented
    return p.searchsorted(ordered, p.full([], x, dtype=ordered.dtype, device=ordered.device), **options)


@decompose("take", also_complex=True)
def take(x: Tensor, positions: Tensor) -> Tensor:
    return contiguous(p.index(flat(x), [positions]))


@decompose("put")
def put(x: Tensor, positions: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    if not x.is_contiguous():
        return NotImplemented
    written = p.index_put(p.view(x, [-1]), [flat(positions)], flat(source), accumulate)
    return p.view(written, list(x.shape))


@decompose("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """An element under the mask gets the next one of the source: as many as the mask has had before."""
    if source.numel() == 0 or mask.dtype is not torch.bool:
        return NotImplemented
    size = list(torch.broadcast_shapes(x.shape, mask.shape))
    mask, x = p.expand(mask, size), p.expand(x, size)
    chosen = p.index(flat(source), [_rank(mask)])
    return packed(p.where(mask, chosen, x))


@decompose("masked_scatter_backward")
def masked_scatter_backward(grad: Tensor, mask: Tensor, size: Sequence[int]) -> Tensor:
    """The gradients under the mask, one after another; what is not under it is added as zero."""
    count = math.prod(size)
    zeros = p.full([count], 0, dtype=grad.dtype, device=grad.device)
    if count == 0 or grad.numel() == 0:
        return p.view(zeros, list(size))
    mask = p.expand(mask, list(grad.shape))
    taken = p.index_put(zeros, [p.where(mask, _rank(mask), 0)], p.where(mask, grad, 0), True)
    return p.view(taken, list(size))


@decompose("nonzero_static")
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """What a program asks a device for its own kernel does in one go."""
    return _nonzeros(x, size, fill_value) if x.device.type == HOST else NotImplemented


def _nonzeros(x: Tensor, size: int, fill_value: int) -> Tensor:
    """The flat positions move to their ranks, those past the end to one more place that is cut off."""
    if x.numel() == 0 or x.dim() == 0:
        return p.full([size, x.dim()], fill_value, dtype=torch.int64, device=x.device)
    mask = p.ne(flat(x), 0)
    rank = _rank(mask)
    kept = p.logical_and(mask, p.lt(rank, size))
    number = iota(x.numel(), x.device)
    none = p.full([size + 1], -1, dtype=torch.int64, device=x.device)
    found = p.slice_(p.index_put(none, [p.where(kept, rank, size)], number, False), 0, 0, size, 1)
    columns, step, rest = [], x.numel(), found
    for extent in x.shape:
        step //= extent
        column = p.div_mode(rest, step, rounding_mode="floor")
        columns.append(p.where(p.lt(found, 0), fill_value, column))
        rest = p.sub(rest, p.mul(column, step))
    return p.cat([p.unsqueeze(column, 1) for column in columns], 1)


def _rank(mask: Tensor) -> Tensor:
    """How many are true before each element, in row-major order; -1 for all before the first true one."""
    counts = p.cumsum(flat(p.to_copy(mask, dtype=torch.int64)), 0)
    return p.view(p.sub(counts, 1), list(mask.shape))


@decompose("as_strided_scatter")
def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    """Only within the elements of a contiguous tensor: what else its storage holds is not told here."""
    first = x.storage_offset() if offset is None else offset
    reach = first + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
    if not x.is_contiguous() or x.storage_offset() != 0 or 0 in size or reach >= x.numel():
        return NotImplemented
    positions = p.full([1] * len(size), first, dtype=torch.int64, device=x.device)
    for dim, step in enumerate(stride):
        positions = p.add(positions, p.mul(iota_along(dim, size, x.device), step))
    return p.view(p.index_put(p.view(x, [-1]), [positions], source, False), list(x.shape))


def _within(x: Tensor, positions: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Positions moved into range: what they select there is masked."""
    extents = list(x.shape)[: len(positions)]
    return [i if i is None else p.clamp(i, -n, n - 1) for i, n in zip(positions, extents, strict=True)]


@decompose("_unsafe_masked_index")
def unsafe_masked_index(x: Tensor, mask: Tensor, positions: Sequence[Tensor | None], fill: float) -> Tensor:
    if x.numel() == 0:
        return NotImplemented
    return p.where(mask, p.index(x, _within(x, positions)), fill)


@decompose("_unsafe_masked_index_put_accumulate")
def unsafe_masked_index_put(x: Tensor, mask: Tensor, positions: Sequence[Tensor | None], values: Tensor) -> Tensor:
    if x.numel() == 0:
        return p.clone(x)
    return p.index_put(x, _within(x, positions), p.where(mask, values, 0), True)


@decompose("_chunk_cat")
def chunk_cat(tensors: Sequence[Tensor], dim: int, chunks: int) -> Tensor:
    """Each tensor filled up with zeros to whole chunks; the first ones side by side, then the second ones, …"""
    parts = []
    for tensor in tensors:
        at = dim % tensor.dim()
        missing = -tensor.shape[at] % chunks
        whole = p.constant_pad(tensor, [*[0, 0] * (tensor.dim() - 1 - at), 0, missing], 0)
        parts.append(reshaped(whole, [*tensor.shape[:at], chunks, -1]))
    return p.cat(parts, dim + 1 if dim >= 0 else -1)


@decompose("renorm")
def renorm(x: Tensor, order: float, dim: int, most: float) -> Tensor:
    """Eager's formula: slices whose norm is larger are divided by a norm that is never zero."""
    wide = cast(x, compute_type(x.dtype))
    norm = p.vector_norm(wide, order, [d for d in range(x.dim()) if d != dim % x.dim()], True)
    factor = p.where(p.gt(norm, most), p.div(p.full_like(norm, most), p.add(norm, 1e-7)), 1.0)
    return p.mul(x, cast(factor, x.dtype))


#: Up to so many candidates are compared one by one.
FEW = 64


@decompose("isin.Tensor_Tensor")
def isin(x: Tensor, candidates: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """A few candidates are compared one by one, many are sorted and searched (not where NaN would be among them)."""
    dtype = promote((x, candidates))
    x, count = cast(x, dtype), candidates.numel()
    candidates = flat(cast(candidates, dtype))
    if count == 0 or x.numel() == 0:
        return p.full(list(x.shape), invert, dtype=torch.bool, device=x.device)
    if count <= FEW:
        found = p.any_(p.eq(p.unsqueeze(x, -1), candidates), [-1], False)
    elif dtype.is_floating_point:
        return NotImplemented
    else:
        ordered = p.sort(candidates, stable=False, dim=0, descending=False)[0]
        found = p.eq(p.index(ordered, [p.clamp(p.searchsorted(ordered, x), None, count - 1)]), x)
    return p.logical_not(found) if invert else found


@decompose("isin.Tensor_Scalar")
def isin_number(x: Tensor, candidate: float, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    return p.ne(x, candidate) if invert else p.eq(x, candidate)


@decompose("isin.Scalar_Tensor")
def isin_of_number(x: float, candidates: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = p.any_(p.eq(candidates, x), None, False)
    return p.logical_not(found) if invert else found


@decompose("value_selecting_reduction_backward")
def value_selecting_reduction_backward(
    grad: Tensor, dim: int, positions: Tensor, size: Sequence[int], keepdim: bool
) -> Tensor:
    """Pointwise: the gradient where the position is the chosen one, zero elsewhere."""
    if not size:
        return p.clone(grad)
    dim = dim % len(size)
    if not keepdim:
        grad, positions = p.unsqueeze(grad, dim), p.unsqueeze(positions, dim)
    return p.where(p.eq(iota_along(dim, size, grad.device), positions), grad, 0.0)
