"""Sums and products near the ends of a dtype, in one that is asked for or long; and signs of NaN that are moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

SOURCES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8)
TARGETS = (*SOURCES, torch.bool, torch.complex64)
VALUES = (1e5, -1e5, 70000.0, 3e38, -3e38, 1e39, -1e39, 1e-5, 1e-9, 1e-46, 3.14159, 2049.0, math.inf, math.nan, 0.3)
REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in "sum nansum mean nanmean prod cumsum cumprod softmax".split()},
    **{f"norm {k}": lambda x, dim, dtype, k=k: torch.linalg.vector_norm(x, k, dim, dtype=dtype) for k in (1, 2, 3)},
    "largest": lambda x, dim, dtype: torch.linalg.vector_norm(x, math.inf, dim, dtype=dtype),
    "masked": lambda x, dim, dtype: torch.masked.sum(x, dim, dtype=dtype),
    "all": lambda x, dim, dtype: torch.sum(x[:2], dtype=dtype),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_in_a_dtype_that_is_asked_for(source: torch.dtype) -> None:
    """Eager converts first, and sums what the dtype holds."""
    x = torch.tensor(list(itertools.product(VALUES, repeat=2)), dtype=torch.float64)
    x = (x if source.is_floating_point else x.clamp(-4e9, 4e9).nan_to_num(0)).to(source)
    wanted = {}
    for (name, function), target in itertools.product(REDUCTIONS.items(), TARGETS):
        try:
            wanted[name, target] = function(x, 1, dtype=target)
        except (RuntimeError, TypeError):
            continue  # it is not defined in this dtype
    compiled = stator.compile(
        lambda x: [REDUCTIONS[name](x, 1, dtype=target) for name, target in wanted],
        fullgraph=True,
        options={"strict": True, "cache": False},
    )
    assert len(wanted) > 60
    for (key, want), got in zip(wanted.items(), compiled(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [3000, 100_003])
def test_long_sums_that_overflow_little_by_little(dtype: torch.dtype, dynamic: bool, length: int) -> None:
    """No short part of them does; what a sum remembers of rounding must not turn an infinity into NaN."""

    def sums(x: Tensor) -> list[Tensor]:
        wide = x[:, None].expand(-1, 3)
        return [x.sum(), x.mean(), wide.sum(0), wide.t().sum(1), (x - 1).sum(), x.cumsum(0)[-1]]

    compiled = stator.compile(sums, dynamic=dynamic, fullgraph=True, options={"strict": True, "cache": False})
    for part in (16, 64, 1000):
        for sign in (1, -1):
            x = torch.full((length,), sign * torch.finfo(dtype).max / part, dtype=dtype)
            for got, want in zip(compiled(x), sums(x), strict=True):
                assert want.isinf().all()
                torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_running_sums_that_cancel_are_eagers(dtype: torch.dtype) -> None:
    """Small terms are lost beside a great one that is taken away again: which ones, the order decides."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(200, 66, generator=generator).to(dtype)
    great = torch.finfo(dtype).max / 2
    for value in (great, -great, great / 3e4, 0.0):
        x[torch.rand(x.shape, generator=generator) < 0.05] = value

    def sums(x: Tensor) -> list[Tensor]:
        return [x.cumsum(1), (x * 1).cumsum(1) - x, x.cumsum(0)]

    compiled = stator.compile(sums, fullgraph=True, options={"strict": True, "cache": False})
    for got, want in zip(compiled(x), sums(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_nan_keeps_its_sign_where_nothing_is_computed(dtype: torch.dtype) -> None:
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    x = torch.tensor(
        [math.nan, 1.0, -0.0, math.nan] * 16, dtype=dtype
    )  # whole vectors: eager's scalars of bfloat16 lose it
    negative = x.view(integers) | torch.iinfo(integers).min
    x = torch.where(torch.arange(64) % 8 < 3, negative, x.view(integers)).view(dtype)

    def moved(x: Tensor) -> list[Tensor]:
        results = [-x, x.abs(), x.neg().neg(), x.flip(0), torch.cat([x, -x]), torch.where(x > 0, x, -x)]
        wide = [torch.copysign(torch.ones_like(x), x), x.double() if dtype is not torch.float64 else x.clone()]
        return [torch.signbit(y) for y in (*results, *wide, x[32:], x.masked_fill(x == 1, 2))]

    assert any(torch.signbit(x[x.isnan()])) and not all(torch.signbit(x[x.isnan()]))
    compiled = stator.compile(moved, fullgraph=True, options={"strict": True, "cache": False})
    for got, want in zip(compiled(x), moved(x), strict=True):
        assert torch.equal(got, want)


#: Sums that may have one element, all of which start at zero: values, and gradients for cotangents of -0.0.
FROM_ZERO: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of one": lambda x: x.view(8, 1).sum(1),
    "mean of one": lambda x: x.view(8, 1).mean(1, keepdim=True),
    "sum of a scalar": lambda x: x[0, 0, 0].sum(),
    "running sum of one": lambda x: x.view(8, 1).cumsum(1),
    "logarithm of a running sum": lambda x: x.view(8, 1).logcumsumexp(1),
    "pool": lambda x: F.avg_pool1d(x, 2),
    "pool of steps": lambda x: F.avg_pool1d(x, 3, 2),
    "pool of an image": lambda x: F.avg_pool2d(x, (1, 2)),
    "even adaptive pool": lambda x: F.adaptive_avg_pool1d(x, 4),
    "uneven adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (1, 3)),
    "fold": lambda x: F.fold(x.view(2, 4), (1, 5), (1, 2)),
    "unfold": lambda x: F.unfold(x[:, None], (1, 2)),
    "nearest": lambda x: F.interpolate(x, 16, mode="nearest"),
    "mirrored": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "replicated": lambda x: F.pad(x, (1, 1), mode="replicate"),
}


@pytest.mark.parametrize("name", FROM_ZERO)
def test_sums_start_at_zero(name: str) -> None:
    """The sum of nothing but -0.0 is 0.0, of one such too; a sum that starts at its first element has -0.0."""
    x = torch.tensor([[[-0.0, -0.0, 1.0, -1.0, 0.0, -0.0, -0.0, 0.0]]])
    compiled = stator.compile(FROM_ZERO[name], fullgraph=True, options={"strict": True})

    def seen(function: Callable[[Tensor], Tensor]) -> list[list[bool]]:
        leaf = x.clone().requires_grad_()
        out = function(leaf)
        (slope,) = torch.autograd.grad(out, leaf, torch.full_like(out, -0.0))
        return [torch.signbit(t).flatten().tolist() for t in (out, slope)]

    assert seen(compiled) == seen(FROM_ZERO[name])
