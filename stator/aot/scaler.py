"""The two operators of `torch.amp.GradScaler`, as operators on one tensor; both write to what they are given.

    _amp_foreach_non_finite_check_and_unscale_([a, b], found, factor)
        -->  found.copy_(1 if anything in a, b is infinite or nan else found); a.mul_(factor); b.mul_(factor)
    _amp_update_scale_(scale, steps, found, …)  -->  less after such a step, more after many others

As in eager's kernels, half types are computed in float32, and the new scale in float64, rounded once.
Neighbours: `tracer.py` runs what comes out; `fused.py` is the same for steps of optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def is_scaling(func: Any) -> bool:
    """Whether it is what a scaler of losses does."""
    return bool(func.namespace == "aten") and func.overloadpacket.__name__ in SCALING


def run_scaling(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator in steps."""
    return SCALING[func.overloadpacket.__name__](*args, **kwargs)


def _unscale(grads: Sequence[Tensor], found: Tensor, factor: Tensor) -> None:
    for grad in grads:
        wide = grad if grad.dtype is torch.float64 else grad.float()
        found.copy_(torch.where(wide.isfinite().all(), found, 1.0))
        grad.copy_(wide * factor.to(wide.dtype))


def _update(scale: Tensor, steps: Tensor, found: Tensor, growth: float, backoff: float, interval: int) -> Tensor:
    skipped = found != 0
    after = steps + 1
    grown = (scale.double() * growth).to(scale.dtype)
    rises = (after == interval) & grown.isfinite()
    kept = torch.where(rises, grown, scale)
    steps.copy_(torch.where(skipped | (after == interval), 0, after))
    return scale.copy_(torch.where(skipped, (scale.double() * backoff).to(scale.dtype), kept))


SCALING: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "_amp_update_scale_": _update,
}
