"""Which convolutions of each channel alone a kernel of ours computes.

`passes/convolutions.py` lays their weights for it, `lowering/depthwise.py` makes the loop.
In two dims of known sizes, with a result for each channel and as many channels as lanes, or more. What autograd keeps,
or the program returns, lies as in eager, so those around it are left to PyTorch.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST, Device
from stator.fake.symbolic import is_symbolic

DTYPES = (torch.float32, torch.bfloat16)


def is_loop(node: fx.Node, device: Device) -> bool:
    """Whether a kernel computes this `aten.convolution`; a weight of bfloat16 may be there in float32."""
    x, weight, bias, *moves, transposed, _, groups = _arguments(node)
    result: torch.Tensor = node.meta["val"]
    tensors = [item.meta["val"] for item in (x, weight, bias) if isinstance(item, fx.Node)]
    if transposed or result.ndim != 4 or result.dtype not in DTYPES:
        return False
    if is_symbolic([*moves, *[n for tensor in (result, *tensors) for n in tensor.shape]]):
        return False
    given, window = tensors[0].shape, tensors[1].shape
    alone = groups == given[1] == result.shape[1] == window[0] and groups >= device.vector_bytes // 4
    fits: bool = alone and prod(window[2:]) <= device.depthwise_taps and 1 not in (*given[2:], *result.shape[2:])
    plain = all(t.device.type == HOST and t.numel() and t.dtype in (result.dtype, torch.float32) for t in tensors)
    leaving = any(user.op == "output" for known in (node, x) for user in known.users)
    return fits and plain and device.host and result.numel() > 0 and not leaving


def _arguments(node: fx.Node) -> Any:
    return node.args


def both(numbers: Any) -> Any:
    """For each of two dims; one number is for both."""
    return [*numbers, *numbers][:2]
