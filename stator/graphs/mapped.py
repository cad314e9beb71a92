"""`torch.vmap` of a captured function, as the target of one node of a graph.

The function is a graph of its own, over one element of the batch; torch maps it, whoever runs the node: eager PyTorch,
or a trace, which then sees the operators that the mapping makes of it.
Neighbours: `capture/values/autograd/vmap.py` makes these, `fingerprint.py` names them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


class Mapped:
    """A function of tensors: those with a number in `in_dims` are split along it, the others are the same for all."""

    __slots__ = ("__name__", "body", "in_dims", "out_dims")

    def __init__(self, body: fx.GraphModule, in_dims: tuple[int | None, ...], out_dims: tuple[int, ...]) -> None:
        self.__name__ = "vmap"
        self.body = body
        self.in_dims = in_dims
        self.out_dims = out_dims

    def __call__(self, *args: torch.Tensor) -> Any:
        return torch.vmap(self._element, self.in_dims, self.out_dims)(*args)

    def _element(self, *args: torch.Tensor) -> Any:
        return self.body(*args)
