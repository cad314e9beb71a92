"""Shape rules of what training for quantization computes: rounding to what a few bits hold, and what backward needs.

PyTorch has no meta kernels for most of them. Results lie as the input does. Neighbours: as `rules.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.execute import aten
from stator.fake.rules import like, rule
from stator.fake.tensor import make


@rule(aten.fake_quantize_per_tensor_affine_cachemask.default)
@rule(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
@rule(aten.fake_quantize_per_channel_affine_cachemask.default)
def _rounded(x: Any, *args: Any, **kwargs: Any) -> Any:
    """The numbers, and which of them were in range."""
    return like(x, None, None, None), like(x, torch.bool, None, None)


@rule(aten._fake_quantize_learnable_per_tensor_affine.default)
@rule(aten._fake_quantize_learnable_per_channel_affine.default)
def _learnable(x: Any, *args: Any, **kwargs: Any) -> Any:
    return like(x, None, None, None)


@rule(aten._fake_quantize_learnable_per_tensor_affine_backward.default)
def _learnable_backward(grad: Any, x: Any, scale: Any, zero_point: Any, *args: Any, **kwargs: Any) -> Any:
    if x.numel() == 0:
        return NotImplemented
    return like(x, None, None, None), *[make((1,), x.dtype, x.device) for _ in range(2)]


@rule(aten._fused_moving_avg_obs_fq_helper.default)
def _observed(
    x: Any, observes: Any, rounds: Any, low: Any, high: Any, scale: Any, zero_point: Any, factor: float,
    least: int, most: int, axis: int, each_row: bool = False, symmetric: bool = False,
) -> Any:  # fmt: skip
    """The numbers of the input, and which were in range; the statistics are written."""
    rows = x.shape[axis] if each_row else 1
    if any(statistics.numel() != rows for statistics in (low, high, scale, zero_point)):
        why = "its first call gives the statistics the size that they have from then on"
        raise Unsupported("_fused_moving_avg_obs_fq_helper", why, "call the model once before it is compiled")
    return _rounded(x)


@rule(aten._fused_moving_avg_obs_fq_helper_functional.default)
def _observed_functional(x: Any, observes: Any, rounds: Any, *statistics: Any, **kwargs: Any) -> Any:
    return *_observed(x, observes, rounds, *statistics, **kwargs), *[like(t, None, None, None) for t in statistics[:4]]
