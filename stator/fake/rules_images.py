"""Shape rules of what makes images of images: pooled, resampled, bordered, rearranged. Volumes and signals as well.

On the CPU most of these kernels give the result the channel innermost where the operand suggests that, also by the
strides of dims of one element; meta kernels have that otherwise. Neighbours: as `rules.py`; `rules_layers.py` has
convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stator.fake.execute import aten, plan_of, run_on_meta
from stator.fake.layout import (
    channels_last_strides,
    dense_like,
    is_contiguous,
    is_nothing,
    same,
    suggests_channels_last,
)
from stator.fake.rules import like, rule, variants
from stator.fake.rules_layers import image, per_dim
from stator.fake.symbolic import is_symbolic, lies_alike
from stator.fake.tensor import FakeTensor, make

# ---- rearranged pixels and channels ----------------------------------------------------------------------------------


@rule(aten.pixel_shuffle.default)
def _pixel_shuffle(x: Any, factor: int) -> Any:
    channels, height, width = x.shape[-3:]
    size = [*x.shape[:-3], channels // factor**2, height * factor, width * factor]
    return _suggested(size, x, factor**2, (channels,))


@rule(aten.pixel_unshuffle.default)
def _pixel_unshuffle(x: Any, factor: int) -> Any:
    """On the CPU what has no elements is copied, in the size that it has."""
    channels, height, width = x.shape[-3:]
    if x.device.type == "cpu" and is_nothing(x.shape):
        return NotImplemented if factor < 1 or height % factor or width % factor else like(x, None, None, None)
    size = [*x.shape[:-3], channels * factor**2, height // factor, width // factor]
    return _suggested(size, x, factor, (height, width))


@rule(aten.channel_shuffle.default)
def _channel_shuffle(x: Any, groups: int) -> Any:
    made = _suggested(x.shape, x, groups, (x.shape[1],))
    fits = x.device.type == "cpu" and groups > 0 and x.dim() > 2 and x.shape[1] % groups == 0
    return make(x.shape, x.dtype, x.device) if made is NotImplemented and (groups == 1 or fits) else made


def _suggested(size: Sequence[int], x: FakeTensor, divisor: int = 1, divided: Sequence[int] = ()) -> Any:
    """A fresh batch of images with the channel innermost if that is suggested; shape functions have the rest."""
    if x.device.type != "cpu" or not suggests_channels_last(x) or divisor < 1 or any(n % divisor for n in divided):
        return NotImplemented
    return make(size, x.dtype, x.device, channels_last_strides(size))


# ---- pooling ---------------------------------------------------------------------------------------------------------


def _pooled(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> list[int] | None:
    kernel, padding, dilation = (per_dim(value, 2) for value in (kernel, padding, dilation))
    stride = per_dim(stride, 2) if stride else kernel
    size = list(x.shape)
    for i in range(2):
        if ceil_mode:
            return None
        extent = size[i - 2] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
        size[i - 2] = extent // stride[i] + 1
    return size if all(extent > 0 for extent in size) else None


@rule(aten.max_pool2d_with_indices.default)
def _max_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    size = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    if size is None or x.dim() != 4:
        return NotImplemented
    values = image(size, x)
    return NotImplemented if values is NotImplemented else (values, image(size, x, torch.int64))


@rule(aten.avg_pool2d.default)
def _avg_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *args: Any, **kwargs: Any
) -> Any:
    size = _pooled(x, kernel, stride, padding, 1, ceil_mode)
    return NotImplemented if size is None or x.dim() != 4 else image(size, x)


@rule(aten._adaptive_avg_pool2d.default)
def _adaptive_pool(x: Any, size: Any) -> Any:
    return image([*x.shape[:2], *size], x) if x.dim() == 4 else NotImplemented


@rule(aten.max_pool3d_with_indices.default)
def _max_pool_of_volumes(x: Any, *args: Any, **kwargs: Any) -> Any:
    """A volume without a batch becomes one of a batch, but is asked before for the layout of images, and refused."""
    func = aten.max_pool3d_with_indices.default
    values, positions = run_on_meta(func, plan_of(func), (x, *args), kwargs)
    if x.device.type != "cpu" or x.dim() != 4:
        return values, positions
    if suggests_channels_last(x):
        raise RuntimeError("Unsupported memory format. Supports only ChannelsLast3d, Contiguous")
    size, stride = (1, *x.shape), channels_last_strides((1, *x.shape))
    inside = not x.is_contiguous() and lies_alike(size, (0, *x.stride()), stride)
    step = channels_last_strides((1, *values.shape))[1:] if inside else None
    return tuple([make(out.shape, out.dtype, x.device, step) for out in (values, positions)])


@rule(
    aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d_backward.default,
    aten._adaptive_avg_pool2d_backward.default,
)
def _pool_backward(grad: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return image(x.shape, x) if x.dim() == 4 else NotImplemented


# ---- resampling and borders ------------------------------------------------------------------------------------------


@rule(*variants("upsample_nearest1d _upsample_nearest_exact1d upsample_linear1d"))
def _resampled_signal(x: Any, size: Any, *args: Any) -> Any:
    """Contiguous, however the lines lie; images may have the channel innermost."""
    if x.dim() != 3:
        return NotImplemented
    return make((*x.shape[:2], *size), x.dtype, x.device)


@rule(
    *variants("upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d _upsample_nearest_exact3d"),
    *variants("upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"),
)
def _resampled(x: Any, size: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    """In the suggested layout; the shape functions look at strides otherwise, and at those of dims of one element."""
    shape = (*x.shape[:2], *size)
    if x.device.type != "cpu" or len(shape) != x.dim() or any(n <= 0 for n in (*x.shape[1:], *size)):
        return NotImplemented
    return make(shape, x.dtype, x.device, channels_last_strides(shape) if suggests_channels_last(x) else None)


@rule(
    *variants("upsample_nearest1d_backward _upsample_nearest_exact1d_backward upsample_linear1d_backward"),
    *variants("upsample_nearest3d_backward _upsample_nearest_exact3d_backward upsample_bicubic2d_backward"),
)
def _contiguous_gradient(grad: Any, size: Any, input_size: Any, *args: Any) -> Any:
    """Contiguous on the CPU, whatever the layout."""
    return make(tuple(input_size), grad.dtype, grad.device) if grad.device.type == "cpu" else NotImplemented


@rule(
    *variants("upsample_nearest2d_backward _upsample_nearest_exact2d_backward upsample_bilinear2d_backward"),
    *variants("upsample_trilinear3d_backward"),
)
def _image_gradient(grad: Any, size: Any, input_size: Sequence[int], *args: Any) -> Any:
    return _resampled(grad, input_size[2:])


@rule(aten.constant_pad_nd.default)
def _pad(x: Any, padding: Sequence[int], value: Any = 0) -> Any:
    last = suggests_channels_last(x)
    if last and x.device.type != "cpu":
        if not is_contiguous(x):
            return NotImplemented
        last = False
    if len(padding) % 2 or len(padding) > 2 * x.dim():
        return NotImplemented
    size = list(x.shape)
    for dim in range(len(padding) // 2):
        size[-1 - dim] = size[-1 - dim] + padding[2 * dim] + padding[2 * dim + 1]
    if any(extent <= 0 for extent in size):
        return NotImplemented
    if not _is_padded(x, padding, last):
        return make(size, x.dtype, x.device, dense_like(tuple(size), x.stride()))
    return make(size, x.dtype, x.device, channels_last_strides(size) if last else None)


def _is_padded(x: FakeTensor, padding: Sequence[int], last: bool) -> bool:
    """Whether there is more of it on any side, or it lies the same without: what is not padded is cloned as it lies."""
    if not is_symbolic(padding) or not (last or is_contiguous(like(x, None, None, None))):
        return any(pad > 0 for pad in padding)
    return True


@rule(*variants("reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d"))
def _bordered(x: Any, padding: Sequence[int]) -> Any:
    """The meta kernels forget the layout, which is also that of a volume without a batch."""
    size = list(x.shape)
    for i in range(len(padding) // 2):
        size[-1 - i] = size[-1 - i] + padding[2 * i] + padding[2 * i + 1]
    if x.dim() - len(padding) // 2 not in (1, 2) or any(extent <= 0 for extent in size):
        return NotImplemented
    return _suggested(size, x)


@rule(
    *variants("reflection_pad2d_backward reflection_pad3d_backward"),
    *variants("replication_pad2d_backward replication_pad3d_backward"),
)
def _bordered_backward(grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """The meta kernels forget the layout of `x`."""
    outer = x.dim() - len(padding) // 2
    return _suggested(x.shape, x) if same(grad.shape[:outer], x.shape[:outer]) else NotImplemented


@rule(aten.max_unpool2d.default)
def _max_unpool(x: Any, indices: Any, size: Sequence[int]) -> Any:
    if x.dim() != 4 or len(size) != 2 or indices.dtype is not torch.int64 or not same(indices.shape, x.shape):
        return NotImplemented
    shape = (*x.shape[:2], *size)
    stride = channels_last_strides(shape) if x.device.type == "cpu" and suggests_channels_last(x) else None
    return make(shape, x.dtype, x.device, stride)


@rule(aten.fractional_max_pool3d_backward.default)
def _fractional_max_pool_backward(grad: Any, x: Any, *args: Any) -> Any:
    return make(tuple(x.shape), x.dtype, x.device)


@rule(aten.im2col.default)
def _windows(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Contiguous, where the shape function has it as views."""
    func = aten.im2col.default
    return make(run_on_meta(func, plan_of(func), (x, *args), kwargs).shape, x.dtype, x.device)
