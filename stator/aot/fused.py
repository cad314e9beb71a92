"""Fused optimizer steps (`aten._fused_adam_` and its kin, as `fused=True` calls them), as operators on one tensor.

    _fused_sgd_([a, b], [c, d], [], lr=0.1, …)  -->  a.copy_(a - 0.1 * c); b.copy_(b - 0.1 * d)

As in eager's kernels, bias corrections are computed in float64, and nothing is written where `found_inf` is set.
Version counters of parameters rise, which eager's kernels leave as they are until something is frozen (`writers.py`).
Left to eager are tensors of one parameter that differ in strides, which its kernels ignore, and half types, to which
its kernels round their constants for some elements and not for others.
Neighbours: `tracer.py` runs what comes out; `foreach.py` is the same for operators that are no whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator.aot.writers import counts
from stator.base.errors import Unsupported

aten = torch.ops.aten
Tensor = torch.Tensor
#: Writes a new value to a tensor, unless the step is left out.
Store = Callable[[Tensor, Tensor], Any]


def is_fused(func: Any) -> bool:
    """Whether it is an optimizer's step for a list of parameters."""
    return bool(func.namespace == "aten") and func.overloadpacket.__name__ in STEPS


def run_fused(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """One parameter after the other."""
    found, scale = kwargs.pop("found_inf", None), kwargs.pop("grad_scale", None)
    maximize = kwargs.pop("maximize")
    step = STEPS[func.overloadpacket.__name__]
    if isinstance(kwargs["lr"], Tensor):
        kwargs["lr"] = kwargs["lr"].double()

    def store(target: Tensor, value: Tensor) -> None:
        target.copy_(value if found is None else torch.where(found == 1, target, value))

    for tensors in _by_parameter(args):
        param, grad = tensors[:2]
        _check(func, [tensor for tensor in tensors if tensor.dim() or not param.dim()])
        if scale is not None:
            store(grad, grad / scale)
        if maximize:
            tensors[1] = grad.neg()
        step(store, *tensors, **kwargs)
    if not counts(func):
        torch.autograd.graph.increment_version(args[0])


def _by_parameter(lists: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """The tensors of each parameter; a list that the step has no use for may be empty."""
    return [[tensors[i] for tensors in lists if len(tensors)] for i in range(len(lists[0]))]


def _check(func: Any, tensors: list[Tensor]) -> None:
    param = tensors[0]
    if param.dtype not in (torch.float32, torch.float64):
        raise Unsupported(func, f"its kernel rounds constants to {param.dtype} for some elements and not for others")
    if any(tensor.shape != param.shape or tensor.stride() != param.stride() for tensor in tensors):
        raise Unsupported(func, "its tensors lie in memory in different ways")


# ---- steps: (store, tensors of one parameter, options) ---------------------------------------------------------------


def _decayed(grad: Tensor, param: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of an L2 penalty."""
    return grad + param * weight_decay if weight_decay else grad


def _adam(
    store: Store, param: Tensor, grad: Tensor, *state: Tensor, lr: Any, weight_decay: float, **options: Any
) -> None:
    grad = _decayed(grad, param, weight_decay)
    _moments(store, param, param, grad, *state, lr=lr, **options)


def _adamw(
    store: Store, param: Tensor, grad: Tensor, *state: Tensor, lr: Any, weight_decay: float, **options: Any
) -> None:
    decayed = param * (1 - lr * weight_decay) if weight_decay else param
    _moments(store, param, decayed, grad, *state, lr=lr, **options)


def _moments(
    store: Store,
    param: Tensor,
    decayed: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *rest: Tensor,
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    amsgrad: bool,
) -> None:
    """Adam's update: the first moment over the root of the second, both corrected for their bias."""
    *greatest, steps = rest
    count = steps.double()
    new_mean = mean.lerp(grad, 1 - beta1)
    new_square = square * beta2 + (1 - beta2) * grad * grad
    most = torch.maximum(greatest[0], new_square) if amsgrad else new_square
    unit = most.sqrt() / (1 - beta2**count).sqrt() + eps
    store(param, decayed - lr / (1 - beta1**count) * new_mean / unit)
    store(mean, new_mean)
    store(square, new_square)
    if amsgrad:
        store(greatest[0], most)


def _sgd(
    store: Store,
    param: Tensor,
    grad: Tensor,
    *momenta: Tensor,
    lr: Any,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    is_first_step: bool,
) -> None:
    """A step along the gradient, or along its momentum."""
    grad = _decayed(grad, param, weight_decay)
    if momentum:
        moved = grad if is_first_step else momenta[0] * momentum + grad * (1 - dampening)
        grad = grad + moved * momentum if nesterov else moved
    store(param, param - grad * lr)
    if momentum:
        store(momenta[0], moved)


def _adagrad(
    store: Store,
    param: Tensor,
    grad: Tensor,
    total: Tensor,
    steps: Tensor,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
) -> None:
    """A step scaled by the root of the sum of all squared gradients."""
    grad = _decayed(grad, param, weight_decay)
    rate = lr / (1 + (steps.double() - 1) * lr_decay)
    new_total = total + grad * grad
    store(param, param - rate * grad / (new_total.sqrt() + eps))
    store(total, new_total)


#: Operator → the step of one parameter.
STEPS: dict[str, Callable[..., None]] = {
    "_fused_adam_": _adam,
    "_fused_adamw_": _adamw,
    "_fused_sgd_": _sgd,
    "_fused_adagrad_": _adagrad,
}
