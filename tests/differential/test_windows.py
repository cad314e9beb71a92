"""Averages of windows and their gradients, bit for bit, where great numbers cancel by their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.capture.entry import versions_of

#: So many channels that eager's vectors leave none over.
SIZES = {1: (2, 4, 45), 2: (2, 16, 11, 11), 3: (1, 4, 6, 7, 7)}
LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}

POOLS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "one dim": (1, lambda x: F.avg_pool1d(x, 3, 1)),
    "borders": (2, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "images": (2, lambda x: F.avg_pool2d(x, 4, 3, 2)),
    "a divisor": (2, lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5)),
    "volumes": (3, lambda x: F.avg_pool3d(x, 3, 2, 1)),
    "adaptive, one dim": (1, lambda x: F.adaptive_avg_pool1d(x, 13)),
    "adaptive": (2, lambda x: F.adaptive_avg_pool2d(x, (5, 3))),
    "adaptive, of a dim": (2, lambda x: F.adaptive_avg_pool2d(x, (11, 4))),
    "adaptive, more than there are": (2, lambda x: F.adaptive_avg_pool2d(x, (4, 15))),
    "adaptive, volumes": (3, lambda x: F.adaptive_avg_pool3d(x, (5, 4, 3))),
}


def numbers(size: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Ordinary ones, with some of the greatest and of great ones among them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    kind = torch.rand(size, generator=generator)
    great = torch.finfo(dtype).max * 0.9
    x = torch.where(kind < 0.1, great * x.sign(), x)
    return torch.where((kind > 0.1) & (kind < 0.2), x * great**0.5, x).to(dtype)


def value_and_gradient(function: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    return out.detach(), torch.autograd.grad(out, x, cotangent)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
@pytest.mark.parametrize("name", POOLS)
def test_sums_of_windows_have_eagers_order(name: str, last: bool, dtype: torch.dtype) -> None:
    rank, function = POOLS[name]
    layout = LAYOUTS.get(rank, torch.contiguous_format) if last else torch.contiguous_format
    x = numbers(SIZES[rank], dtype, 1).to(memory_format=layout)
    cotangent = numbers(function(x).shape, dtype, 2).to(memory_format=layout)
    want = value_and_gradient(function, x, cotangent)
    found = value_and_gradient(stator.compile(function, options={"strict": True}), x, cotangent)
    for ours, eager in zip(found, want, strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [(5, 3), (4, 9)], ids=str)
def test_half_types_are_summed_in_float(size: tuple[int, int]) -> None:
    x = numbers(SIZES[2], torch.bfloat16, 3)
    compiled = stator.compile(F.adaptive_avg_pool2d, options={"strict": True})
    torch.testing.assert_close(compiled(x, size), F.adaptive_avg_pool2d(x, size), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("border", [0, 2])
def test_one_window_is_as_long_as_what_it_covers(border: int, include: bool) -> None:
    """Of sizes that change too: the window of this pool has so many places that going through them would not end."""

    def function(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 1_000_000, None, border, ceil_mode=True, count_include_pad=include).flatten(1)

    compiled = stator.compile(function, dynamic=True, fullgraph=True, options={"strict": True})
    for side in (5, 9, 12):
        x = torch.randn(2, 3, side, side + 1, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-12, atol=1e-20)
    assert len(versions_of(compiled)) == 1


@pytest.mark.parametrize("size", [(8, 7, 5, 7), (2, 3, 9, 8)], ids=str)
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_means_of_what_has_borders(mode: str, dim: int, size: tuple[int, ...]) -> None:
    """Sums of few rows, of which the last ones have other borders than the rest: they are added behind a loop."""

    def function(x: Tensor) -> Tensor:
        return torch.std_mean(F.pad(x, (1, 1, 1, 1), mode=mode), dim, keepdim=True)[1]

    x = torch.randn(size, generator=torch.Generator().manual_seed(1)).bfloat16()
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(compiled(x), function(x), rtol=0.01, atol=0.01)
