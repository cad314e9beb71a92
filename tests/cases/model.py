"""What a case is, and how its inputs are made: `normal(2, 3)` is a recipe that gives a tensor for a dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, U8, BOOL = torch.int64, torch.int32, torch.uint8, torch.bool

FLOATS = (F32, F64, BF16)
ALL_FLOATS = (F32, F64, BF16, F16)
INTEGERS = (I64, I32, U8)
SINGLE = (F32,)

Recipe = Callable[[torch.dtype], Any]


@dataclass(frozen=True)
class Case:
    """`fn(*make_inputs(dtype))` is a program of tensors that runs in eager and in stator."""

    name: str
    fn: Callable[..., Any]
    recipes: tuple[Recipe, ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    #: Tolerance in units of the dtype's own rounding, where more than the usual is due.
    slack: float = 1.0

    def make_inputs(self, dtype: torch.dtype) -> tuple[Any, ...]:
        """Fresh random inputs, the same ones for the same dtype."""
        torch.manual_seed(len(self.name) * 7919 + sum(map(ord, self.name)))
        return tuple(recipe(dtype) for recipe in self.recipes)


def normal(*size: int) -> Recipe:
    """Around 0."""
    return lambda dtype: (torch.randn(size) * 2).to(dtype)


def positive(*size: int) -> Recipe:
    """Between 0.1 and 3."""
    return lambda dtype: (torch.rand(size) * 2.9 + 0.1).to(dtype)


def unit(*size: int) -> Recipe:
    """Inside of -1 … 1."""
    return lambda dtype: (torch.rand(size) * 1.8 - 0.9).to(dtype)


def probability(*size: int) -> Recipe:
    """Inside of 0 … 1."""
    return lambda dtype: (torch.rand(size) * 0.9 + 0.05).to(dtype)


def whole(low: int, high: int, *size: int) -> Recipe:
    """Whole numbers in low … high-1, in the case's dtype."""
    return lambda dtype: torch.randint(low, high, size).to(dtype)


def positions(high: int, *size: int, dtype: torch.dtype = I64, low: int = 0) -> Recipe:
    """Integers in low … high-1, whatever the case's dtype."""
    return lambda _: torch.randint(low, high, size, dtype=dtype)


def distinct(high: int, count: int) -> Recipe:
    """Positions without repetition."""
    return lambda _: torch.randperm(high)[:count]


def mask(*size: int) -> Recipe:
    """Booleans."""
    return lambda _: torch.rand(size) > 0.5


def single(recipe: Recipe) -> Recipe:
    """Float32 whatever the case's dtype."""
    return lambda _: recipe(F32)


def special(dtype: torch.dtype) -> Tensor:
    """Infinities, NaN, zeros of both signs and numbers between."""
    nan, inf = float("nan"), float("inf")
    return torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -2.5, 1.5, 100.0, -30.0]).to(dtype)


def permuted(recipe: Recipe, *order: int) -> Recipe:
    """Not contiguous: the dims of the recipe's tensor, reordered."""
    return lambda dtype: recipe(dtype).permute(order)


def strided(recipe: Recipe) -> Recipe:
    """Not contiguous: every second element of the last dim."""
    return lambda dtype: recipe(dtype)[..., ::2]


def channels_last(recipe: Recipe) -> Recipe:
    return lambda dtype: recipe(dtype).contiguous(memory_format=torch.channels_last)


def gradients(fn: Callable[..., Tensor]) -> Callable[..., Any]:
    """The program (value, gradients of its floating-point inputs for a fixed uneven weighting)."""

    def run(*inputs: Any) -> Any:
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
        value = fn(*leaves)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        weights = torch.arange(value.numel(), device=value.device).remainder(7).sub(2.5).to(value.dtype)
        found = torch.autograd.grad(value, wanted, weights.view(value.shape), allow_unused=True)
        return (value.detach(), *[g for g in found if g is not None])

    return run


def assert_close(ours: Any, eager: Any, case: Case, dtype: torch.dtype) -> None:
    """Same structure, dtypes, sizes and strides, and values within the dtype's rounding."""
    ours, eager = flat(ours), flat(eager)
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager, strict=True):
        if not isinstance(b, Tensor):
            assert a == b
            continue
        assert a.dtype is b.dtype and a.shape == b.shape, f"{a.dtype}{list(a.shape)} is not {b.dtype}{list(b.shape)}"
        assert layout(a) == layout(b), f"strides {a.stride()} are not {b.stride()} for {list(b.shape)}"
        bound = tolerance(b.dtype, dtype) * case.slack
        torch.testing.assert_close(a, b, rtol=bound, atol=bound, equal_nan=True)


def tolerance(result: torch.dtype, computed: torch.dtype) -> float:
    if not result.is_floating_point:
        return 0.0
    coarser = max((result, computed), key=lambda t: torch.finfo(t).eps if t.is_floating_point else 0.0)
    return {F64: 1e-12, F32: 2e-6, F16: 2e-3, BF16: 1.6e-2}[coarser]


def layout(t: Tensor) -> list[int]:
    """The strides that matter."""
    return [] if t.numel() == 0 else [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [item for part in value for item in flat(part)]
    return [] if value is None else [value]
