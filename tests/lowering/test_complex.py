"""Dtypes that loops do not compute on: programs of complex numbers, forward and backward, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fft, linalg

import stator

COMPLEX = torch.complex64


def c(*size: int) -> Tensor:
    """Complex numbers."""
    return torch.randn(size, dtype=COMPLEX)


def r(*size: int) -> Tensor:
    """Real numbers."""
    return torch.randn(size)


def rotary(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def spectrogram(x: Tensor) -> Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)


#: Name → (program, what makes its inputs).
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "fft": (lambda x: fft.fft(x * 2), lambda: (c(4, 16),)),
    "ifft": (lambda x: fft.ifft(x).imag, lambda: (c(4, 16),)),
    "rfft": (lambda x: fft.rfft(x.sin()), lambda: (r(4, 16),)),
    "irfft": (lambda x: fft.irfft(x * 1j), lambda: (c(4, 9),)),
    "hfft": (fft.hfft, lambda: (c(4, 9),)),
    "ihfft": (fft.ihfft, lambda: (r(4, 16),)),
    "fft2": (lambda x: fft.fftshift(fft.fft2(x)).abs(), lambda: (c(3, 8, 8),)),
    "filtered": (lambda x: fft.irfftn(fft.rfftn(x) * 2), lambda: (r(3, 8, 8),)),
    "mixing": (lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real + x, lambda: (r(2, 8, 16),)),
    "stft": (spectrogram, lambda: (r(2, 64),)),
    "arithmetic": (lambda x, y: x * y + x / y - y, lambda: (c(4, 5), c(5))),
    "alpha": (lambda x, y: torch.add(x, y, alpha=2 - 1j), lambda: (c(4, 5), c(5))),
    "with_real": (lambda x, y: x * y + y, lambda: (c(4, 5), r(5))),
    "numbers": (lambda x: x * (1 + 2j) - 3j, lambda: (c(4, 5),)),
    "real_times_j": (lambda x: (x.exp() * 1j).exp(), lambda: (r(4, 5),)),
    "linear": (F.linear, lambda: (c(4, 5), c(3, 5), c(3))),
    "convolution": (F.conv1d, lambda: (c(2, 3, 8), c(4, 3, 3))),
    "gram": (lambda x: x.conj().T @ x, lambda: (c(4, 5),)),
    "adjoint": (lambda x, y: x.mH @ y, lambda: (c(2, 4, 5), c(2, 4, 3))),
    "bmm": (lambda x, y: torch.bmm(x, y.conj()), lambda: (c(2, 4, 5), c(2, 5, 3))),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), lambda: (c(2, 4, 5), c(2, 5, 3))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, alpha=2j), lambda: (c(3), c(4, 5), c(5, 3))),
    "polar": (lambda x, y: torch.polar(x.abs(), y), lambda: (r(4, 5), r(4, 5))),
    "complex": (lambda x, y: torch.complex(x * 2, y + 1), lambda: (r(4, 5), r(4, 5))),
    "rotary": (rotary, lambda: (r(2, 4, 6, 8), r(6, 4))),
    "view_as_real": (lambda x: torch.view_as_real(x * 2).relu(), lambda: (c(4, 5),)),
    "view_as_complex": (lambda x: torch.view_as_complex((x * 2)[:, :2]) + 1, lambda: (r(4, 6),)),
    "parts": (lambda x: x.real.exp() * x.imag, lambda: (c(4, 5),)),
    "imaginary_of_conjugate": (lambda x: (x * 2).conj().imag * 2, lambda: (c(4, 5),)),
    "resolved": (lambda x: torch.view_as_real(x.conj().resolve_conj()) + 1, lambda: (c(4, 5),)),
    "magnitude": (lambda x: x.abs() + x.angle() + x.sgn().real, lambda: (c(4, 5),)),
    "square": (lambda x: (x * x.conj()).real, lambda: (c(4, 5),)),
    "functions": (lambda x: x.exp().sin() + x.sqrt().tanh() + x.log() + x.sigmoid(), lambda: (c(4, 5),)),
    "powers": (lambda x, y: x**3 + x**y, lambda: (c(4, 5), c(4, 5))),
    "sums": (lambda x: x.sum(1) + x.mean() + x.prod(1) + x.norm(), lambda: (c(4, 5),)),
    "running": (lambda x: x.cumsum(1) + x.cumprod(0), lambda: (c(4, 5),)),
    "joined": (lambda x, y: torch.cat([x, y * 2], 1)[:, 1:] + 1, lambda: (c(4, 5), c(4, 2))),
    "stacked": (lambda x, y: torch.stack([x.sin(), y], 1), lambda: (c(4, 5), c(4, 5))),
    "where": (lambda x, y: torch.where(x.real > 0, x, y * 1j), lambda: (c(4, 5), c(4, 5))),
    "casts": (lambda x: (x.to(torch.complex128) * 1j).exp().to(COMPLEX), lambda: (r(4, 5),)),
    "sliced": (lambda x: x[1:, ::2] * 2, lambda: (c(4, 6),)),
    "indexed": (lambda x: x[torch.tensor([2, 0, 2])], lambda: (c(4, 6),)),
    "permuted": (lambda x: x.permute(2, 0, 1).reshape(3, -1).sin(), lambda: (c(4, 5, 3),)),
    "laid_out": (lambda x: x.t().contiguous().view(-1) + 0, lambda: (c(4, 5),)),
    "strided": (lambda x: torch.as_strided(x, (2, 2), (2, 1), 1) * 2, lambda: (c(3, 4),)),
    "padded": (lambda x: F.pad(x, (1, 2)).flip(1), lambda: (c(4, 5),)),
    "constants": (lambda x: torch.full((4, 5), 1 + 2j) + torch.zeros_like(x) + x, lambda: (c(4, 5),)),
    "inverse": (linalg.inv, lambda: (c(2, 4, 4),)),
    "solved": (linalg.solve, lambda: (c(4, 4), c(4, 2))),
    "singular_values": (linalg.svdvals, lambda: (c(4, 3),)),
    "eigenvalues": (lambda x: linalg.eigvals(x).abs().sort().values, lambda: (r(4, 4),)),
    "factors": (lambda x: linalg.qr(x).R.abs(), lambda: (c(4, 3),)),
    "attention": (lambda x: x.abs().softmax(-1) * x, lambda: (c(4, 5),)),
    "number": (lambda x: (x * 2).real + 1, lambda: (c(),)),
    "empty": (lambda x: (x * 2).real, lambda: (c(0, 3),)),
}


def leaves(make: Callable[[], tuple[Tensor, ...]]) -> list[Tensor]:
    torch.manual_seed(0)
    return [x.requires_grad_() for x in make()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_eagers(name: str) -> None:
    function, make = PROGRAMS[name]
    ours, eagers = leaves(make), leaves(make)
    expected = function(*eagers)
    result = stator.compile(function, fullgraph=True, options={"verify": True})(*ours)
    assert (result.dtype, result.stride(), result.is_conj()) == (
        expected.dtype,
        expected.stride(),
        expected.is_conj(),
    )
    torch.testing.assert_close(result, expected, rtol=2e-5, atol=2e-5)
    tangent = torch.randn_like(expected.detach().resolve_conj())
    tangent = tangent.conj() if tangent.is_complex() else tangent  # as autograd passes it on: not resolved
    got = torch.autograd.grad(result, ours, tangent, allow_unused=True)
    wanted = torch.autograd.grad(expected, eagers, tangent, allow_unused=True)
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_quotients_are_eagers_bits(dtype: torch.dtype) -> None:
    """Where one is close to a real number, all digits of the other part are those of roundings."""
    x, y = torch.randn(1024, dtype=dtype), torch.randn(1024, dtype=dtype)
    divide = stator.compile(lambda x, y: (x / y, x / x, x.real / y, y.reciprocal(), x / (1.3 - 0.7j)), fullgraph=True)
    eager = x / y, x / x, x.real / y, y.reciprocal(), x / (1.3 - 0.7j)
    assert eager[1].imag.count_nonzero() > 0
    for quotient, wanted in zip(divide(x, y), eager, strict=True):
        assert torch.equal(quotient, wanted)


def test_sizes_may_be_symbolic() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.conj().t() @ x, x[1:].real + 1, torch.view_as_real(x * 2).sin()

    compiled = stator.compile(f, fullgraph=True, dynamic=True)
    for size in ((5, 8), (3, 4), (7, 2)):
        x = c(*size)
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_unsigned_integers_are_moved_and_cast(dtype: torch.dtype) -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.to(torch.int64) * 3, x.t().contiguous(), x[1:].clone(), (x.to(torch.int64) * 2).to(dtype)

    x = torch.arange(12).to(dtype).view(3, 4)
    for mine, theirs in zip(stator.compile(f, fullgraph=True)(x), f(x), strict=True):
        assert mine.dtype is theirs.dtype and mine.stride() == theirs.stride()
        assert torch.equal(mine.to(torch.int64), theirs.to(torch.int64))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_small_floats_round_as_eager_does(dtype: torch.dtype) -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        small = (x * 2).to(dtype)
        return small.to(torch.float32) + 1, small.t()

    x = r(5, 6)
    for mine, theirs in zip(stator.compile(f, fullgraph=True)(x), f(x), strict=True):
        assert mine.dtype is theirs.dtype and mine.stride() == theirs.stride()
        assert torch.equal(mine.float(), theirs.float())


def test_bits_are_read_as_another_dtype() -> None:
    def f(x: Tensor) -> Tensor:
        return (x * 2).view(torch.int32) + 1

    x = r(3, 4)
    assert torch.equal(stator.compile(f, fullgraph=True)(x), f(x))
