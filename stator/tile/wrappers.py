"""Tensors as launches take them in other guises: as another dtype, or as a dtype alone.

Neighbours: `arguments.py` takes whatever has `data_ptr()` and a dtype with a known name, which these have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.tile.arguments import TORCH_NAMES, is_tensor, torch_dtype
from stator.tile.errors import LaunchError
from stator.tile.language.types import BY_IR_NAME
from stator.tile.language.types import dtype as tile_dtype


class TensorWrapper:
    """A tensor whose bytes a kernel takes as another dtype."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base, self.dtype = base, dtype
        self.shape, self.device = base.shape, getattr(base, "device", None)

    def data_ptr(self) -> int:
        return int(self.base.data_ptr())

    def stride(self, *args: int) -> Any:
        return self.base.stride(*args)

    def element_size(self) -> int:
        return int(self.base.element_size())

    def numel(self) -> int:
        return int(self.base.numel())

    def untyped_storage(self) -> Any:
        return self.base.untyped_storage()

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """A tensor for a kernel that takes its bytes as another dtype."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not is_tensor(base):
        raise LaunchError(f"only tensors can be reinterpreted, and not a {type(tensor).__name__}")
    if not isinstance(dtype, tile_dtype) and torch_dtype(dtype) is None:
        raise LaunchError(f"{dtype!r} is no dtype of the language", "dtypes are those of `tl`, such as `tl.float8e5`")
    return base if dtype == base.dtype else TensorWrapper(base, dtype)


class MockTensor:
    """A dtype in place of a tensor, for `warmup`."""

    def __init__(self, dtype: Any, shape: Any = None) -> None:
        self.dtype, self.shape = dtype, [1] if shape is None else shape

    @staticmethod
    def wrap_dtype(value: Any) -> Any:
        """A mock tensor of a dtype; anything else as it is."""
        return MockTensor(value) if torch_dtype(value) is not None else value

    @staticmethod
    def data_ptr() -> int:
        return 0

    def numel(self) -> int:
        return 0

    def element_size(self) -> int:
        found = torch_dtype(self.dtype)
        return BY_IR_NAME[TORCH_NAMES["uint8"]].itemsize if found is None else found.itemsize


def must_use_result(value: Any, message: Any = True) -> Any:
    """Marks a function of the language whose result has to be used; nothing is checked here."""
    if isinstance(value, str):
        return lambda function: must_use_result(function, value)
    function: Callable[..., Any] = value
    function._must_use_result = message  # type: ignore[attr-defined]
    return function
