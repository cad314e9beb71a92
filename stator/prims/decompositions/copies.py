"""The `*_copy` operators, by one rule, and operators that rearrange elements into new memory.

`VIEWS` is the whole list: an operator `x_copy` is the view `x` of the same arguments and a contiguous clone of it.
Neighbour: `shape.py`, which reduces the views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stator.fake.layout import promote
from stator.fake.overloads import overload
from stator.prims import names as p
from stator.prims.decompositions.layout import contiguous, iota, packed, reshaped
from stator.prims.dtypes import cast
from stator.prims.table import decompose

#: Copying operator → the view it copies.
VIEWS = {
    "alias_copy": "alias",
    "as_strided_copy": "as_strided",
    "detach_copy": "alias",
    "diagonal_copy": "diagonal",
    "expand_copy": "expand",
    "narrow_copy": "narrow",
    "permute_copy": "permute",
    "select_copy.int": "select.int",
    "slice_copy.Tensor": "slice.Tensor",
    "split_copy.Tensor": "split.Tensor",
    "split_with_sizes_copy": "split_with_sizes",
    "squeeze_copy": "squeeze",
    "squeeze_copy.dim": "squeeze.dim",
    "squeeze_copy.dims": "squeeze.dims",
    "t_copy": "t",
    "transpose_copy.int": "transpose.int",
    "unbind_copy.int": "unbind.int",
    "unfold_copy": "unfold",
    "unsqueeze_copy": "unsqueeze",
    "view_copy.dtype": "view.dtype",
}


def _copied(view: Callable[..., Any]) -> Callable[..., Any]:
    def copy(*args: Any, **kwargs: Any) -> Any:
        viewed = view(*args, **kwargs)
        return packed(viewed) if isinstance(viewed, Tensor) else [packed(part) for part in viewed]

    return copy


for _name, _view in VIEWS.items():
    decompose(_name, also_complex=True)(_copied(overload(_view)))  # type: ignore[arg-type]


@decompose("view_copy", also_complex=True)
def view_copy(x: Tensor, size: Sequence[int]) -> Tensor:
    """Of any layout: what cannot be viewed is copied before."""
    return packed(p.view(contiguous(x), list(size)))


@decompose("diag_embed", also_complex=True)
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Pointwise: an element of row r and column r + offset is that of `x` at the smaller of both."""
    rank = x.dim() + 1
    dim1, dim2 = dim1 % rank, dim2 % rank
    padded = p.constant_pad(x, [0, abs(offset)], 0)
    extent = padded.shape[-1]
    number = iota(extent, x.device)
    row, column = p.unsqueeze(number, 1), p.unsqueeze(number, 0)
    square = p.where(p.eq(p.sub(column, row), offset), p.unsqueeze(padded, -1 if offset >= 0 else -2), _zero(x))
    rest = iter(range(rank - 2))
    places = {dim1: rank - 2, dim2: rank - 1}
    return contiguous(p.permute(square, [places[d] if d in places else next(rest) for d in range(rank)]))


def _zero(x: Tensor) -> int | bool:
    return False if x.dtype is torch.bool else 0


@decompose("block_diag", also_complex=True)
def block_diag(tensors: Sequence[Tensor]) -> Tensor:
    """The blocks, each as wide as the result, one below the other."""
    if not tensors:
        return NotImplemented
    dtype = promote(tensors)
    blocks = [x if x.dim() == 2 else p.view(contiguous(x), [1, x.numel()]) for x in tensors]
    width = sum([block.shape[1] for block in blocks])
    rows, before = [], 0
    for block in blocks:
        after = width - before - block.shape[1]
        rows.append(p.constant_pad(cast(block, dtype), [before, after], 0))
        before += block.shape[1]
    return p.cat(rows, 0)


@decompose("rot90", also_complex=True)
def rot90(x: Tensor, turns: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    turns %= 4
    if turns == 0:
        return packed(x)
    if turns == 2:
        return p.flip(x, dims)
    order = list(range(x.dim()))
    first, second = dims[0] % x.dim(), dims[1] % x.dim()
    order[first], order[second] = second, first
    return p.permute(p.flip(x, [dims[1] if turns == 1 else dims[0]]), order)


@decompose("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels as a matrix of (groups, channels of a group), transposed."""
    batch, channels, *rest = x.shape
    if not x.is_contiguous():
        return NotImplemented
    parted = p.view(x, [batch, groups, channels // groups, *rest])
    return reshaped(p.permute(parted, [0, 2, 1, *range(3, len(rest) + 3)]), list(x.shape))
