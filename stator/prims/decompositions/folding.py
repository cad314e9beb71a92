"""Windows as columns (`im2col`) and columns added back (`col2im`), and the gradient of `Tensor.unfold`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions import windows as w
from stator.prims.decompositions.layout import packed
from stator.prims.dtypes import cast, compute_type
from stator.prims.table import decompose


@decompose("im2col")
def im2col(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    out = x if x.dim() == 4 else p.unsqueeze(x, 0)
    for d in range(2):
        out = w.padded(out, 2 + d, padding[d], padding[d])
    for d in range(2):
        out = w.windows(out, 2 + d, kernel[d], stride[d], dilation[d])
    batch, channels, rows, columns = out.shape[:4]
    out = packed(p.permute(out, [0, 1, 4, 5, 2, 3]))
    size = [batch, channels * kernel[0] * kernel[1], rows * columns]
    return p.view(out, size if x.dim() == 4 else size[1:])


@decompose("col2im")
def col2im(
    columns: Tensor,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    if max(kernel) > w.WRITTEN_OUT:
        return NotImplemented
    places = [(size[d] + 2 * padding[d] - (kernel[d] - 1) * dilation[d] - 1) // stride[d] + 1 for d in range(2)]
    lead = list(columns.shape[:-2])
    channels = columns.shape[-2] // (kernel[0] * kernel[1])
    dense = packed(columns)
    parts = cast(p.view(dense, [*lead, channels, *kernel, *places]), compute_type(columns.dtype))
    n = parts.dim()
    parts = p.permute(parts, [*range(n - 4), n - 2, n - 1, n - 4, n - 3])
    for d in (1, 0):
        parts = w.overlap_add(parts, n - 4 + d, size[d], padding[d], stride[d], dilation[d])
    return packed(cast(w.from_zero(parts), columns.dtype))


@decompose("unfold_backward")
def unfold_backward(grad: Tensor, sizes: Sequence[int], dim: int, length: int, step: int) -> Tensor:
    if length > w.WRITTEN_OUT * step:
        return NotImplemented
    if not sizes:
        return p.sum_(grad, [0])
    wide = cast(grad, compute_type(grad.dtype))
    return cast(packed(w.overlap_add(wide, dim, sizes[dim], 0, step)), grad.dtype)
