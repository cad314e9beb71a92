"""Recipes for awkward tensors: a size, a dtype, and a way to lie in memory.

A recipe is data that prints as the Python that makes it, so that a failing program can be pasted. `build` gives the
same numbers every time; `wide` makes them float64, `noise` moves them by about one rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stator.coverage.compare import EPSILON, FLOATS

COMPLEX = (torch.complex64, torch.complex128)
LAYOUTS = ("contiguous", "transposed", "stepped", "expanded", "channels_last", "offset", "permuted")


@dataclass(frozen=True)
class Input:
    """One input. `grad` is "" (none), "leaf" or "inner" (the result of an eager operator on a leaf).

    The same numbers, in the same places, on any `device`.
    """

    size: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    values: str = "normal"
    grad: str = ""
    seed: int = 0
    device: str = "cpu"

    def wide(self) -> Input:
        """The same numbers, in float64."""
        wider = torch.float64 if self.dtype in FLOATS else torch.complex128 if self.dtype in COMPLEX else self.dtype
        return replace(self, dtype=wider)

    def build(self, noise: float = 0.0, wide: bool = False) -> tuple[Tensor, Tensor]:
        """The tensor that the function gets, and the leaf that gradients arrive at."""
        values = self._values(noise)
        if wide:
            values = values.to(self.wide().dtype)
        leaf = _laid_out(values, self.layout)
        if self.device != "cpu":
            memory = leaf.untyped_storage().to(device=self.device)
            leaf = torch.empty(0, dtype=leaf.dtype, device=self.device).set_(
                memory, leaf.storage_offset(), leaf.shape, leaf.stride()
            )
        if not self.grad:
            return leaf, leaf
        leaf.requires_grad_()
        return (leaf * 1 if self.grad == "inner" else leaf), leaf

    def _values(self, noise: float) -> Tensor:
        if self.dtype in COMPLEX:
            real = torch.float32 if self.dtype is torch.complex64 else torch.float64
            parts = [replace(self, dtype=real, seed=self.seed + k)._values(noise) for k in (0, 100)]
            return torch.complex(*parts)
        generator = torch.Generator().manual_seed(self.seed)
        size = self.size
        if self.dtype is torch.bool:
            return torch.rand(size, generator=generator) < 0.5
        if self.dtype not in FLOATS:
            low = 0 if self.dtype is torch.uint8 or self.values == "positive" else -4
            values = torch.randint(low, 5, size, generator=generator).to(self.dtype)
            return _with(values, _ends(self.dtype), generator) if self.values == "edges" else values
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        values = (normal.abs() + 0.25 if self.values == "positive" else normal * 2).to(self.dtype)
        if self.values in ("special", "edges"):
            values = _with(values, SPECIAL if self.values == "special" else _limits(self.dtype), generator)
        if noise:
            shake = torch.randn(size, generator=torch.Generator().manual_seed(self.seed + 1), dtype=torch.float64)
            moved = (values.double() * (1 + noise * EPSILON[self.dtype] * shake)).to(self.dtype)
            values = torch.where(moved.isfinite(), moved, values)  # the largest number is no infinity
        return values


SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-40, 20.0, -100.0)


def _with(values: Tensor, odd: Sequence[float], generator: torch.Generator) -> Tensor:
    """The same with some odd values among them."""
    picks = torch.randint(0, 3 * len(odd), values.shape, generator=generator)
    for i, value in enumerate(odd):
        values[picks == i] = value
    return values


def _ends(dtype: torch.dtype) -> tuple[int, ...]:
    limits = torch.iinfo(dtype)
    return (limits.min, limits.max, limits.min + 1, limits.max - 1, 0, limits.max // 2 + 1, 7)


def _limits(dtype: torch.dtype) -> tuple[float, ...]:
    """What is far out in a dtype, and what is tiny in it."""
    limits = torch.finfo(dtype)
    far = (limits.max, limits.min, limits.max / 3, math.inf, -math.inf, math.nan, 3e9, -3e9, 1e19)
    return (*[v for v in far if abs(v) <= limits.max or not math.isfinite(v)], limits.tiny, limits.tiny / 8, -0.0, 0.5)


def _laid_out(values: Tensor, layout: str) -> Tensor:
    """A tensor of these values that lies in memory as asked, where its size allows it."""
    dims = values.dim()
    if layout == "transposed" and dims >= 2:
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "permuted" and dims >= 3:
        return values.permute(1, 2, 0, *range(3, dims)).contiguous().permute(2, 0, 1, *range(3, dims))
    if layout == "stepped" and dims >= 1:
        package = torch.zeros(*values.shape[:-1], 2 * values.shape[-1] + 1, dtype=values.dtype)
        target = package[..., 1::2]
        return target.copy_(values) if target.shape == values.shape else values
    if layout == "expanded" and dims >= 1 and values.shape[0] > 0:
        return values[:1].clone().expand(values.shape)
    if layout == "channels_last" and dims == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "offset":
        package = torch.zeros(values.numel() + 3, dtype=values.dtype)
        return package[3:].view(values.shape).copy_(values)
    return values
