"""What programs use beside kernels: descriptors of tensors that they pass to them."""

from __future__ import annotations

from stator.tile.tools import tensor_descriptor

__all__ = ["tensor_descriptor"]
