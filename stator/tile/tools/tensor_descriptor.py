"""A tensor descriptor that a program makes and passes to a kernel: a tensor, and the shape of the blocks of it.

It is checked as Triton checks it: the last dim has stride 1, the others strides of whole 16 bytes.
Neighbours: `stator.tile.arguments` takes it, `stator.tile.language.block_pointers` has what the kernel sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stator.tile.errors import LaunchError


@dataclass
class TensorDescriptor:
    """A tensor, its shape and strides in elements, and the shape of a block."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= 5 or len(self.strides) != rank or len(self.block_shape) != rank:
            raise LaunchError("shape, strides and block_shape of a descriptor have one item for each of 1 to 5 dims")
        if self.strides[-1] != 1:
            raise LaunchError(f"the last dim of a descriptor has stride 1, not {self.strides[-1]}", "use .contiguous()")
        size = int(self.base.element_size()) if hasattr(self.base, "element_size") else int(self.base.itemsize)
        for stride in self.strides[:-1]:
            if stride * size % 16:
                raise LaunchError(f"the strides of a descriptor are multiples of 16 bytes, and {stride * size} is none")
        if self.padding not in ("zero", "nan"):
            raise LaunchError(f"there is no padding {self.padding!r}", "valid: 'zero', 'nan'")

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: list[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole tensor."""
        strides = tensor.strides if not callable(getattr(tensor, "stride", None)) else tensor.stride()
        if hasattr(tensor, "itemsize") and not callable(getattr(tensor, "stride", None)):
            strides = [stride // tensor.itemsize for stride in strides]
        return cls(tensor, list(tensor.shape), list(strides), list(block_shape), padding)
