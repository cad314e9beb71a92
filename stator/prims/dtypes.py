"""The dtypes in which decompositions compute: eager's rule for half types, and what numbers do to a tensor's dtype.

Eager computes an operator of half types in float32 and rounds its result; `rounds_once` does so for a decomposition,
which would round after every step otherwise. Some kernels of the host do just that, and are told by `rounds_steps`.
Neighbours: `stator.fake.layout` has promotion, `types.py` the type rules of the primitives, which state what comes out.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from stator.base.device import HOST
from stator.fake.layout import promote
from stator.prims.names import full, to_copy

HALF_TYPES = frozenset((torch.bfloat16, torch.float16))


def cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`value` in `dtype`; itself if it is so already (never return this from a decomposition)."""
    return value if value.dtype is dtype else to_copy(value, dtype=dtype)


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """The type eager computes a value of `dtype` in: float32 for half types."""
    return torch.float32 if dtype in HALF_TYPES else dtype


def held(number: float, dtype: torch.dtype) -> float:
    """The number as a dtype holds it: what is a parameter of eager's kernels is rounded before it is computed with."""
    return ctypes.c_float(number).value if dtype is torch.float32 else float(number)


def holding(number: float, dtype: torch.dtype) -> torch.dtype:
    """A float dtype, or float64 where it has no such number, which is infinite then in the dtype itself."""
    fits = not isinstance(number, int | float) or math.isinf(number) or abs(number) <= torch.finfo(dtype).max
    return dtype if fits else torch.float64


def is_one(factor: float) -> bool:
    """Whether a factor can be left out. One that differs from call to call never is, and nothing is assumed of it."""
    return not isinstance(factor, torch.SymFloat) and factor == 1


def common_type(x: torch.Tensor, number: float) -> torch.dtype:
    """The dtype of an operation of a tensor and a wrapped number. (`torch.result_type` would be dispatched.)"""
    if isinstance(number, float | torch.SymFloat) and not x.dtype.is_floating_point and not x.dtype.is_complex:
        return torch.get_default_dtype()
    if x.dtype is torch.bool and not isinstance(number, bool):
        return torch.int64
    return x.dtype


def floating(x: torch.Tensor) -> torch.Tensor:
    """Whole numbers and truth values as floats."""
    return x if x.is_floating_point() else cast(x, torch.get_default_dtype())


def rounds_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run `function` in float32 where an argument is of a half type, and round what it gives if the result is too."""

    return rounds_steps()(function)


def rounds_steps(*dtypes: torch.dtype) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `rounds_once`, but for these half types, in which a kernel of the host computes: every step is rounded."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
            if not any(tensor.dtype in HALF_TYPES for tensor in tensors):
                return function(*args, **kwargs)
            dtype = promote(tensors)
            if dtype in dtypes and tensors[0].device.type == HOST:
                return function(*args, **kwargs)
            out = function(*[_widen(a) for a in args], **{k: _widen(v) for k, v in kwargs.items()})
            if dtype not in HALF_TYPES:
                return out
            if isinstance(out, tuple):
                return tuple(_narrow(o, dtype) for o in out)
            return _narrow(out, dtype)

        return run

    return enter


def rounded(number: float, like: torch.Tensor) -> torch.Tensor | float:
    """A number as a half type holds it, where a formula is computed in one: a parameter of eager's kernels."""
    return full([], number, dtype=like.dtype, device=like.device) if like.dtype in HALF_TYPES else number


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in HALF_TYPES:
        return to_copy(value, dtype=torch.float32)
    return value


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
        return to_copy(value, dtype=dtype)
    return value
