"""Results of eager kernels, held to what their shape functions promised: views of them are cut by promised strides.

Invariant: no torch here; what is given is asked. Neighbours: `runtime/extern.py` and `aot/reference.py` call kernels.
"""

from __future__ import annotations

from typing import Any

from stator.base.errors import InternalError


def as_promised(kernel: str, result: Any, size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """The result with the strides that were promised; a size that was not is our mistake, and no result."""
    if result.shape != size:
        raise InternalError("run", f"{kernel} gave a tensor of {tuple(result.shape)}, its shape function said {size}")
    if all(n == 1 or mine == theirs for n, mine, theirs in zip(size, stride, result.stride(), strict=True)):
        return result
    return result.new_empty_strided(size, stride).copy_(result)
