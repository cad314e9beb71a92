"""Memory of the caller that a graph writes before it is sure to end: kept, and put back if it fails.

Only graphs in which a check cannot come before the write ask for it (`loop/failing.py`). Putting back is not counted as
a write: as far as autograd and the program can tell, the graph has not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Kept = list[tuple[torch.Tensor, torch.Tensor]]


def keep(*tensors: torch.Tensor) -> Kept:
    """The tensors with copies of what they hold."""
    return [(tensor, tensor.detach().clone()) for tensor in tensors]


def put_back(kept: Kept) -> None:
    """Undo all writes since."""
    for tensor, copy in kept:
        tensor.data.copy_(copy)
