"""ATen operators that a wrapper calls, bound once by name.

`into("aten.mm.out")` is called with the operator's arguments and `out=`; `returning("aten.topk.default", …)` gives
always a tuple of the results that are tensors, `returning_sized` the same where the geometry is an argument. Kernels
read results by address, so a result is only given on if it lies in memory as the compiler was told by PyTorch's shape
functions, which are wrong now and then; else it is laid out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stator.base.errors import InternalError

Geometry = tuple[tuple[int, ...], tuple[int, ...]]  # size, strides


def _overload(target: str) -> Any:
    import torch  # the room itself does not need torch

    namespace, name, overload = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def into(target: str) -> Callable[..., Any]:
    """An operator that writes its result into `out`. Torch's own binding costs half of the overload's call."""
    import torch  # the room itself does not need torch

    namespace, name, overload = target.split(".")
    direct = getattr(torch, name, None) if (namespace, overload) == ("aten", "out") else None
    return direct if direct is not None else _overload(target)._op


def returning(target: str, *geometry: Geometry) -> Callable[..., tuple[Any, ...]]:
    """An operator that makes its results; `geometry` is what is relied on, for each that is a tensor."""
    overload = _overload(target)
    operator = overload._op
    returns = overload._schema.returns
    if len(returns) == 1 and str(returns[0].type) == "Tensor" and len(geometry) == 1:
        size, stride = geometry[0]

        def call_single(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            result = operator(*args, **kwargs)
            if result.stride() == stride and result.shape == size:
                return (result,)
            return (_laid_out(target, result, size, stride),)

        return call_single

    return lambda *args, **kwargs: _results(target, operator(*args, **kwargs), geometry)


def returning_sized(target: str) -> Callable[..., tuple[Any, ...]]:
    """An operator that makes its results, called with what is relied on, for each that is a tensor, in front."""
    operator = _overload(target)._op
    return lambda geometry, *args, **kwargs: _results(target, operator(*args, **kwargs), geometry)


def _results(target: str, results: Any, geometry: Sequence[Geometry]) -> tuple[Any, ...]:
    """The results that are tensors, laid out as promised."""
    import torch  # the room itself does not need torch

    every = (results,) if isinstance(results, torch.Tensor) else results
    tensors = [result for result in every if isinstance(result, torch.Tensor)]
    for i, (size, stride) in enumerate(geometry):
        result = tensors[i]
        if result.stride() != stride or result.shape != size:
            tensors[i] = _laid_out(target, result, size, stride)
    return tuple(tensors)


def _laid_out(target: str, result: Any, size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """The result with the strides that were promised; a size that was not is our mistake, and no result."""
    import torch  # the room itself does not need torch

    if result.shape != size:
        raise InternalError("run", f"{target} gave a tensor of {tuple(result.shape)}, its shape function said {size}")
    if all(n == 1 or mine == theirs for n, mine, theirs in zip(size, stride, result.stride(), strict=True)):
        return result
    return torch.empty_strided(size, stride, dtype=result.dtype, device=result.device).copy_(result)
