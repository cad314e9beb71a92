"""Floats of eight bits: conversions give eager's bits, and products of them are the library's call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from tests.codegen import tiled

FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2]
WIDE = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def many() -> Tensor:
    """Floats of all exponents, among them those between two neighbours, the next ones, infinities and NaNs."""
    bits = torch.arange(0, 1 << 32, 1 << 16, dtype=torch.int64)
    bits = torch.cat([bits, bits + 1, bits + 0x7FFF, bits + 0x8000, bits + 0x8001])
    return (bits - ((bits >> 31) << 32)).int().view(torch.float32)


def same(found: Tensor, wanted: Tensor) -> None:
    """Equal bits, but for those of what is no number."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    ours, theirs = (x.float() for x in (found, wanted))
    assert torch.equal(ours.isnan(), theirs.isnan())
    numbers = ~ours.isnan()
    integers = torch.uint8 if found.dtype.itemsize == 1 else torch.int16 if found.dtype.itemsize == 2 else torch.int32
    assert torch.equal(found[numbers].view(integers), wanted[numbers].view(integers))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("wide", WIDE, ids=str)
@pytest.mark.parametrize("eight", FORMATS, ids=str)
def test_conversions(eight: torch.dtype, wide: torch.dtype, device: str) -> None:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(eight).to(device)
    x = many().to(device).to(wide)
    explained = stator.explain(lambda codes, x: (codes.to(wide), x.to(eight)))(codes, x)
    assert not explained.externs
    same(explained.result[0], codes.to(wide))
    same(explained.result[1], x.to(eight))


@pytest.mark.parametrize("eight", FORMATS, ids=str)
def test_as_a_kernel_for_a_gpu(eight: torch.dtype, tmp_path: Path) -> None:
    """What is computed on both sides of a conversion is in its kernel."""
    x = many()[::97].contiguous()
    made, given = tiled.scheduled(lambda x: (x * 0.5).to(eight).to(torch.bfloat16) + 1, x)
    assert len(made.kernels) == 1
    (found,) = tiled.run(made, given, tmp_path)
    same(found, (x * 0.5).to(eight).to(torch.bfloat16) + 1)


def test_other_numbers() -> None:
    """Integers go through float32, one format through it to the other; what is none of these is eager's."""
    whole, flags = torch.arange(-70000, 70000, 7), torch.tensor([True, False])
    for eight in FORMATS:
        for given in (whole, whole.int(), whole.to(torch.int8), flags):
            explained = stator.explain(lambda x, eight=eight: x.to(eight))(given)
            assert not explained.externs
            same(explained.result, given.to(eight))
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(FORMATS[0])
    same(stator.compile(lambda x: x.to(FORMATS[1]))(codes), codes.to(FORMATS[1]))
    assert torch.equal(stator.compile(lambda x: x.to(torch.int32))(codes[:64]), codes[:64].to(torch.int32))


def scaled(x: Tensor, w: Tensor, one: Tensor, other: Tensor) -> Any:
    product = torch._scaled_mm(x, w.t(), one, other, out_dtype=torch.bfloat16)
    return product * 2


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_scaled_products(device: str) -> None:
    """The library's call, with what is computed before and after it in kernels."""

    def step(x: Tensor, w: Tensor) -> Any:
        size = x.abs().amax().float() / 448
        return scaled((x.float() / size).to(torch.float8_e4m3fn), w, size, torch.full((), 0.5, device=device))

    x = torch.randn(32, 64, device=device).bfloat16()
    w = torch.randn(48, 64, device=device).to(torch.float8_e4m3fn)
    explained = stator.explain(step)(x, w)
    assert [name.rpartition(".")[0] for name in explained.externs] == ["aten._scaled_mm"]
    torch.testing.assert_close(explained.result, step(x, w), rtol=2e-2, atol=2e-2)
