"""What eager's other ways have in common: they are called for each operator, below autograd.

Neighbours: `ways.py` lists the ways.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class Way(TorchDispatchMode):
    """While this is active each operator is computed by `called`.

    Invariant: operands are in memory. Autograd's zeros are not: PyTorch has what makes products of them above a mode,
    and a kernel that is called below one reads from address 0.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        return self.called(func, *(given if is_view(func) else tree_map(_in_memory, given)))

    @abstractmethod
    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the operator gives."""


def is_view(func: Any) -> bool:
    """Whether a result is an operand's memory, unwritten."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


def _in_memory(value: Any) -> Any:
    if isinstance(value, Tensor) and value._is_zerotensor():
        return torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return value
