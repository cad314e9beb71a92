"""What operators check of their data, as nodes: the program raises for bad data though nobody reads the result.

    y = x[i]         -->  check_positions(i, -n, n); y = index(x, i)
    q = a // b       -->  check_divisor(b); q = div(a, b, "floor")
    b = bernoulli(p) -->  check_probabilities(p); b = bernoulli(p)

Kernels check the positions at which they read, so `passes/checks.py` drops the first kind where the whole result is
needed. Only operators of the program itself are looked at, in forward, on the CPU: a GPU divides whole numbers
by zero, and kernels that read out of range stop it. Neighbour: `tracer.py` asks before it runs an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from stator.fake import FakeTensor
from stator.fake.layout import promote
from stator.fake.overloads import Table
from stator.graphs.checks import CHECK_DIVISOR, CHECK_POSITIONS, CHECK_PROBABILITIES

aten = torch.ops.aten

#: A check of one tensor: the operator, the tensor, its other arguments.
Check: TypeAlias = tuple[Any, Any, tuple[Any, ...]]

#: Overload → called like it, gives the checks of its data.
CHECKED = Table("check")
checks = CHECKED.register


def _positions(x: Any, low: Any, high: Any) -> list[Check]:
    """A check of positions, unless they are known to be in range."""
    if not isinstance(x, FakeTensor) or x.device.type != "cpu" or x.dtype not in (torch.int64, torch.int32):
        return []
    if _is_known(x, lambda known: (known >= low) & (known < high)):
        return []
    return [(CHECK_POSITIONS, x, (low, high))]


def _is_known(x: FakeTensor, holds: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether the value is known, and something holds for all of its elements."""
    if x.constant is None:
        return False
    with torch._C._DisableTorchDispatch():
        return bool(holds(x.constant).all())


def _is_empty(x: Any, dims: Sequence[int]) -> bool:
    """Whether nothing lies at any position in some dims: most kernels do not look at positions then."""
    return 0 in [extent for dim, extent in enumerate(x.shape) if dim not in dims]


@checks("index.Tensor", "index_put", "_index_put_impl")
def _index(x: Any, indices: Sequence[Any], *args: Any, **kwargs: Any) -> list[Check]:
    if _is_empty(x, [dim for dim, index in enumerate(indices) if index is not None]):
        return []
    found = [_positions(index, -x.shape[dim], x.shape[dim]) for dim, index in enumerate(indices) if index is not None]
    return [check for each in found for check in each]


@checks("index_add", "index_copy")
def _replaced(x: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return [] if x.dim() and _is_empty(x, [dim % x.dim()]) else _along(x, dim, index)


@checks("index_select", "gather", "index_reduce", "scatter.src", "scatter.value", "scatter.reduce")
@checks("scatter.value_reduce", "scatter_add", "scatter_reduce.two")
def _along(x: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return _positions(index, 0, x.shape[dim] if x.dim() else 1)


@checks("index_fill.int_Scalar", "index_fill.int_Tensor")
def _filled(x: Any, dim: int, index: Any, *args: Any) -> list[Check]:
    extent = x.shape[dim] if x.dim() else 1
    return [] if x.dim() and _is_empty(x, [dim % x.dim()]) else _positions(index, -extent, extent)


@checks("take", "put")
def _flat(x: Any, index: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return _positions(index, -x.numel(), x.numel())


@checks("embedding")
def _embedding(weight: Any, index: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return _positions(index, 0, weight.shape[0])


@checks("nll_loss_forward", "nll_loss2d_forward")
def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> list[Check]:
    if not isinstance(target, FakeTensor) or target.device.type != "cpu":
        return []
    safe = aten.where.ScalarOther(aten.ne.Scalar(target, ignore), target, 0)
    return _positions(safe, 0, x.shape[1 if x.dim() > 1 else 0])


@checks("div.Tensor_mode", "div.Scalar_mode")
def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> list[Check]:
    return _divisor(x, y) if rounding_mode is not None else []


@checks("floor_divide", "floor_divide.Scalar", "remainder.Tensor", "remainder.Scalar_Tensor", "fmod.Tensor")
def _divisor(x: Any, y: Any) -> list[Check]:
    """Where whole numbers are divided by a tensor, and there is something to divide."""
    if not isinstance(y, FakeTensor) or y.device.type != "cpu":
        return []
    dtype = promote((x, y))
    if _is_known(y, lambda known: known != 0) or dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return []
    return [] if isinstance(x, FakeTensor) and 0 in x.shape else [(CHECK_DIVISOR, y, ())]


def _probabilities(x: Any) -> list[Check]:
    if not isinstance(x, FakeTensor) or x.device.type != "cpu" or not x.dtype.is_floating_point:
        return []
    return [] if _is_known(x, lambda known: (known >= 0) & (known <= 1)) else [(CHECK_PROBABILITIES, x, ())]


@checks("bernoulli")
def _drawn(x: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return _probabilities(x)


@checks("bernoulli.Tensor")
def _drawn_for(x: Any, probabilities: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return _probabilities(probabilities)


@checks("binary_cross_entropy")
def _binary(x: Any, target: Any, *args: Any, **kwargs: Any) -> list[Check]:
    return [*_probabilities(x), *_probabilities(target)]
