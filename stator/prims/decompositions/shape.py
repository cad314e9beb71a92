"""Shapes: views that reduce to the primitive views, joins, repeats, triangles, and view gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.fake.layout import is_nothing, suggests_channels_last
from stator.prims import names as p
from stator.prims.decompositions.layout import contiguous, iota, iota_along, reshaped
from stator.prims.table import decompose, respell


@respell("t")
def t(x: Tensor) -> tuple[Any, ...]:
    return (p.permute, x, [1, 0]) if x.dim() == 2 else (p.alias, x)


@respell("transpose.int")
def transpose(x: Tensor, a: int, b: int) -> tuple[Any, ...]:
    if x.dim() == 0:
        return p.alias, x
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    return p.permute, x, order


@decompose("movedim.intlist")
def movedim(x: Tensor, source: Sequence[int], target: Sequence[int]) -> Tensor:
    rank = x.dim()
    placed = {d % rank: s % rank for s, d in zip(source, target, strict=True)}
    rest = iter([d for d in range(rank) if d not in placed.values()])
    return p.permute(x, [placed[d] if d in placed else next(rest) for d in range(rank)])


@decompose("squeeze")
def squeeze(x: Tensor) -> Tensor:
    return p.squeeze(x, [d for d in range(x.dim()) if x.shape[d] == 1])


@decompose("squeeze.dim")
def squeeze_dim(x: Tensor, dim: int) -> Tensor:
    return p.squeeze(x, [dim])


@decompose("narrow")
def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return p.slice_(x, dim, start, start + length)


@decompose("stack", also_complex=True)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return p.cat([p.unsqueeze(x, dim) for x in tensors], dim)


@decompose("repeat", also_complex=True)
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    lead = len(repeats) - x.dim()
    size = [1] * lead + list(x.shape)
    result = [n * extent for n, extent in zip(repeats, size, strict=True)]
    if math.prod(result) == 0:
        return p.full(result, 0, dtype=x.dtype, device=x.device)
    paired = x
    for d in range(lead):
        paired = p.unsqueeze(paired, d)
    for d in range(len(size)):
        paired = p.unsqueeze(paired, 2 * d)
    interleaved = [n for pair in zip(repeats, size, strict=True) for n in pair]
    return reshaped(p.expand(paired, interleaved), result)


@decompose("repeat_interleave.self_int", also_complex=True)
def repeat_interleave(x: Tensor, count: int, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    if dim is None:
        x, dim = reshaped(x, [-1]), 0
    dim = dim % x.dim()
    result = list(x.shape)
    result[dim] *= count
    wide = p.unsqueeze(x, dim + 1)
    return reshaped(p.expand(wide, [*x.shape[: dim + 1], count, *x.shape[dim + 1 :]]), result)


@decompose("roll", also_complex=True)
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if x.numel() == 0 and (dims or x.dim() == 1):
        return p.clone(x)
    if not dims:
        flat = reshaped(x, [-1])
        return p.view(roll(flat, shifts, [0]), list(x.shape))
    value = x
    for shift, dim in zip(shifts, dims, strict=True):
        extent = x.shape[dim]
        start = extent - shift if 0 < shift < extent else -shift if -extent < shift <= 0 else (extent - shift) % extent
        value = p.cat([p.slice_(value, dim, start, extent), p.slice_(value, dim, 0, start)], dim)
    return value


def _triangle(x: Tensor, diagonal: int, lower: bool) -> Tensor:
    rows, columns = x.shape[-2], x.shape[-1]
    distance = p.sub(iota(columns, x.device), p.unsqueeze(iota(rows, x.device), 1))
    kept = p.le(distance, diagonal) if lower else p.ge(distance, diagonal)
    return contiguous(p.where(kept, x, False if x.dtype is torch.bool else 0))


@decompose("tril", also_complex=True)
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(x, diagonal, True)


@decompose("triu", also_complex=True)
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(x, diagonal, False)


def _zeros(size: Sequence[int], like: Tensor) -> Tensor:
    return p.full(list(size), 0, dtype=like.dtype, device=like.device)


@decompose("slice_backward", also_complex=True)
def slice_backward(grad: Tensor, size: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    return p.slice_scatter(_zeros(size, grad), grad, dim, start, end, step)


@decompose("select_backward", also_complex=True)
def select_backward(grad: Tensor, size: Sequence[int], dim: int, position: int) -> Tensor:
    return p.select_scatter(_zeros(size, grad), grad, dim, position)


@decompose("diagonal_backward", also_complex=True)
def diagonal_backward(grad: Tensor, size: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    return diagonal_scatter(_zeros(size, grad), grad, offset, dim1, dim2)


@decompose("diagonal_scatter", also_complex=True)
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Pointwise: the source is read at the row of each element that lies on the diagonal."""
    if not x.is_contiguous():  # eager keeps its strides, holes included
        return NotImplemented
    rank = x.dim()
    dim1, dim2 = dim1 % rank, dim2 % rank
    if x.numel() == 0 or source.numel() == 0:
        return p.clone(x)
    row, column = iota_along(dim1, x.shape, x.device), iota_along(dim2, x.shape, x.device)
    on_diagonal = p.eq(p.sub(column, row), offset)
    position = p.clamp(p.add(row, offset) if offset < 0 else row, 0, source.shape[-1] - 1)
    spread = p.unsqueeze(p.unsqueeze(source, -1), -1)
    order = list(range(rank - 2))
    places = {dim1: rank - 1, dim2: rank}
    rest = iter(order)
    arranged = p.permute(spread, [*[places[d] if d in places else next(rest) for d in range(rank)], rank - 2])
    lined = p.expand(arranged, [*[1 if d in places else x.shape[d] for d in range(rank)], source.shape[-1]])
    full = [*x.shape, source.shape[-1]]
    taken = p.gather(p.expand(lined, full), rank, p.expand(p.unsqueeze(position, rank), [*x.shape, 1]))
    return p.where(on_diagonal, p.squeeze(taken, [rank]), x)


@decompose("pixel_shuffle")
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = x.shape
    n = len(lead)
    parted = p.view(contiguous(x), [*lead, c // factor**2, factor, factor, h, w])
    ordered = p.permute(parted, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return _suggested(x, reshaped(ordered, [*lead, c // factor**2, h * factor, w * factor]))


@decompose("pixel_unshuffle")
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    if x.device.type == "cpu" and is_nothing(x.shape):
        return p.clone(x)
    *lead, c, h, w = x.shape
    n = len(lead)
    parted = p.view(contiguous(x), [*lead, c, h // factor, factor, w // factor, factor])
    ordered = p.permute(parted, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return _suggested(x, reshaped(ordered, [*lead, c * factor**2, h // factor, w // factor]))


def _suggested(x: Tensor, made: Tensor) -> Tensor:
    """`made` in the memory format that eager's CPU kernels choose for results of `x`."""
    last = x.device.type == "cpu" and suggests_channels_last(x)
    return p.clone(made, memory_format=torch.channels_last) if last else made


@decompose("trace")
def trace(x: Tensor) -> Tensor:
    return p.sum_(p.diagonal(x), [0])
