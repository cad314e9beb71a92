"""`torch.tensor` and its kin of numbers that are symbolic: one scalar each, stacked.

PyTorch writes the numbers into memory while it makes the tensor, so each would be fixed, and every other value of a
position or a rate a graph of its own. Invariant: dtype, sizes and bits are those of eager, which goes by way of
float64 where the result is not whole. What eager may refuse (a large number for a narrow dtype, NaN for a whole one)
is left to it, and so is all where the program asks for the tensor's data (`known_literals`). Neighbours: `composite.py`
has the table, `capture/frames.py` tries both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from stator.fake.symbolic import is_symbolic

#: How many numbers are made tensors one by one; more are a table, and constants.
LONGEST = 64
_KINDS = {bool: torch.bool, int: torch.int64, torch.SymInt: torch.int64, float: None, torch.SymFloat: None}


def tensor(
    data: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: Any,
) -> Any:
    """`torch.tensor`, and `torch.as_tensor`, which makes a new tensor of numbers too."""
    if requires_grad or pin_memory or others or not is_symbolic([data]) or (shape := _shape(data)) is None:
        return NotImplemented
    numbers = list(_numbers(data))
    kinds = {type(number) for number in numbers}
    if len(numbers) > LONGEST or not kinds <= _KINDS.keys():
        return NotImplemented
    if dtype is None:
        found = {_KINDS[kind] for kind in kinds}
        dtype = torch.get_default_dtype() if None in found else torch.int64
    if not dtype.is_floating_point and (dtype is not torch.int64 or kinds & {float, torch.SymFloat}):
        return NotImplemented
    environment = next(
        number.node.environment for number in numbers if isinstance(number, torch.SymInt | torch.SymFloat)
    )
    if environment.known_literals:
        return NotImplemented
    environment.has_literals = True
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    made = [torch.scalar_tensor(number, dtype=wide, device=device) for number in numbers]
    return (torch.stack(made).view(shape) if shape else made[0]).to(dtype)


def tensor_like(x: Any, data: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """`Tensor.new_tensor`: of the tensor's dtype and on its device unless others are given."""
    return tensor(data, dtype or x.dtype, device or x.device, **options)


def _shape(data: Any) -> list[int] | None:
    """The sizes of nested sequences; None where they are not a box, or hold what is no sequence of numbers."""
    if not isinstance(data, list | tuple):
        return None if isinstance(data, Tensor) else []
    inner = [_shape(item) for item in data]
    if not inner or inner[0] is None or any(shape != inner[0] for shape in inner):
        return None
    return [len(data), *inner[0]]


def _numbers(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from _numbers(item)
    else:
        yield data
