"""Which convolutions a kernel of ours computes: of each channel alone, and under `freezing` those of few terms.

On a GPU those of each channel alone are kernels where images of half types have the channel innermost, forward and
backward: cuDNN compiles a kernel for each such shape while the program runs.

`passes/convolutions.py` lays their weights for it, `lowering/convolution.py` makes the loop, by `lowering/depthwise.py`
where each channel is alone. Those with windows of one pixel are products (`pixels.py`).
In two dims, with a result for each channel and as many channels as lanes, or more, of which channels, windows and steps
are known; how many images there are, and their sides, need not be where channels are alone. What autograd keeps,
or the program returns, lies as in eager, so those around it are left to PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST, Device
from stator.fake.symbolic import extents, is_symbolic
from stator.sizes import hint
from stator.sizes.strides import contiguous, same_layout

#: Terms of a result, and channels of the image, up to which a convolution of all channels is a loop, and the pixels
#: from which on.
STEM_TERMS, STEM_CHANNELS, STEM_PIXELS = 32, 4, 512
DTYPES = (torch.float32, torch.bfloat16)
#: Those of a GPU.
HALVES = (torch.bfloat16, torch.float16)


def is_depthwise(node: fx.Node, device: Device) -> bool:
    """Whether a kernel computes this `aten.convolution`, each channel alone; bfloat16's weight may be float32 there."""
    x, weight, bias, *moves, transposed, _, groups = _arguments(node)
    result: torch.Tensor = node.meta["val"]
    tensors = [item.meta["val"] for item in (x, weight, bias) if isinstance(item, fx.Node)]
    if transposed or not _alone(result, tensors[0], tensors[1], [*moves, groups], device):
        return False
    if not device.host:
        return _innermost_halves(result, tensors[0])
    plain = all(t.device.type == HOST and t.dtype in (result.dtype, torch.float32) for t in tensors)
    leaving = any(user.op == "output" for known in (node, x) for user in known.users)
    return plain and result.dtype in DTYPES and not leaving


def is_depthwise_backward(node: fx.Node, device: Device) -> bool:
    """Whether kernels compute this `aten.convolution_backward`, each channel alone, of image and weight."""
    *given, _, stride, padding, dilation, transposed, _, groups, wanted = _arguments(node)
    gradient, image, weight = [item.meta["val"] for item in given]
    if device.host or transposed or wanted[2]:
        return False
    moves = [stride, padding, dilation, groups]
    return _alone(gradient, image, weight, moves, device) and _innermost_halves(gradient, image)


def _alone(
    result: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, moves: Sequence[Any], device: Device
) -> bool:
    """Whether each channel is convolved alone, by known windows and steps that are few enough to be written out."""
    if result.ndim != 4:
        return False
    made, given, window, groups = extents(result.shape), extents(image.shape), weight.shape, moves[-1]
    if is_symbolic([*moves, given[1], made[1], *window]):
        return False
    alone = groups == given[1] == made[1] == window[0] and groups >= device.vector_bytes // 4
    sides = [hint(side) for side in (*given[2:], *made[2:])]
    few = prod(window[2:]) <= device.depthwise_taps
    return alone and few and hint(made[0]) > 0 and 0 not in sides and 1 not in sides


def _innermost_halves(*images: torch.Tensor) -> bool:
    return all(image.dtype in HALVES and _lies_innermost(image) for image in images)


def _lies_innermost(image: torch.Tensor) -> bool:
    size = n, c, h, w = extents(image.shape)
    batch, row, column, channel = contiguous((n, h, w, c))
    return same_layout(size, extents(image.stride()), (batch, channel, row, column))


def is_stem(node: fx.Node, device: Device) -> bool:
    """Whether a kernel computes this `aten.convolution`, once its weight is laid for it: few terms each."""
    x, weight, _, _, padding, _, transposed, _, groups = _arguments(node)
    result: torch.Tensor = node.meta["val"]
    given, window = x.meta["val"], weight.meta["val"]
    if transposed or groups != 1 or result.ndim != 4 or result.dtype not in DTYPES or not device.product_blocks:
        return False
    if is_symbolic([*result.shape, *given.shape, *window.shape]) or both(padding) != [0, 0]:
        return False
    few = prod(window.shape[1:]) <= STEM_TERMS and window.shape[0] >= device.vector_bytes // 4
    return few and window.shape[1] <= STEM_CHANNELS and result.shape[0] * prod(result.shape[2:]) >= STEM_PIXELS


def is_laid(node: fx.Node) -> bool:
    """Whether the weight of a convolution lies as loops read it: results side by side."""
    size, stride = _arguments(node)[1].meta["val"].shape, _arguments(node)[1].meta["val"].stride()
    return bool(size[0] > 1 and stride[0] == 1 and prod(size[1:]) > 1)


def _arguments(node: fx.Node) -> Any:
    return node.args


def both(numbers: Any) -> Any:
    """For each of two dims; one number is for both."""
    return [*numbers, *numbers][:2]
