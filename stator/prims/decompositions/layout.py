"""What decompositions of several families need: results laid out as eager lays them out, and positions along a dim.

`contiguous` may give its argument back, `packed` and `laid_out` never do. Neighbours: `windows.py`, which builds on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stator.fake.layout import suggests_channels_last
from stator.prims import names as p


def packed(x: Tensor) -> Tensor:
    """A contiguous copy."""
    return p.clone(x, memory_format=torch.contiguous_format)


def contiguous(x: Tensor) -> Tensor:
    """`x` if it is contiguous, else a contiguous copy."""
    return x if x.is_contiguous() else packed(x)


def flat(x: Tensor) -> Tensor:
    """The elements in row-major order as one dim; a view of `x` if that is contiguous."""
    return p.view(contiguous(x), [-1])


def reshaped(x: Tensor, size: Sequence[int]) -> Tensor:
    """A contiguous copy of `x` with another shape."""
    return p.view(packed(x), size)


def laid_out(value: Tensor, like: Tensor) -> Tensor:
    """A copy of `value` in the memory format that eager's kernels choose for `like`."""
    return p.clone(value, memory_format=suggested(like))


def suggested(x: Tensor) -> torch.memory_format:
    """The memory format that eager's kernels see in the strides of `x`."""
    if suggests_channels_last(x):
        return torch.channels_last
    if x.dim() == 5 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return torch.contiguous_format


def iota(n: int, device: torch.device | None) -> Tensor:
    """0 … n-1 as int64."""
    return p.arange(0, n, 1, dtype=torch.int64, device=device)


def iota_along(dim: int, size: Sequence[int], device: torch.device) -> Tensor:
    """The index along `dim` (non-negative) of every element of a tensor of `size`, to be broadcast to that size."""
    return p.view(iota(size[dim], device), [n if d == dim else 1 for d, n in enumerate(size)])


def along(vector: Tensor, x: Tensor, dim: int) -> Tensor:
    """`vector`, or a table of such rows, with dims of size 1 behind, so that its last dim meets dim `dim` of `x`."""
    rest = x.dim() - 1 - dim % x.dim()
    return p.view(vector, [*vector.shape, *[1] * rest]) if rest else vector
