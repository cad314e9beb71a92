"""Short-time Fourier transforms and their inverse: eager's numbers and layouts, one version for all lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base import log

#: PyTorch advises, once in a process, to give a window, and to ask for complex numbers.
pytestmark = [
    pytest.mark.filterwarnings("ignore:A window was not provided"),
    pytest.mark.filterwarnings("ignore:stft with return_complex=False"),
]

WINDOW, NARROW = torch.hann_window(16), torch.hamming_window(10)

FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: torch.stft(x, 16, return_complex=True),
    "window": lambda x: torch.stft(x, 16, hop_length=5, window=WINDOW, return_complex=True),
    "narrow window": lambda x: torch.stft(x, 16, 4, 10, NARROW, normalized=True, return_complex=True),
    "narrow": lambda x: torch.stft(x, 16, 4, 11, return_complex=True),
    "not centred": lambda x: x.stft(16, 3, window=WINDOW, center=False, return_complex=True),
    "two sides": lambda x: torch.stft(x, 16, 4, window=WINDOW, onesided=False, return_complex=True),
    "constant": lambda x: torch.stft(x, 16, 4, window=WINDOW, pad_mode="constant", return_complex=True),
    "pairs": lambda x: torch.stft(x, 16, 4, window=WINDOW, return_complex=False),
}

INVERSE: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda z: torch.istft(z, 16),
    "window": lambda z: torch.istft(z, 16, hop_length=4, window=WINDOW),
    "narrow window": lambda z: torch.istft(z, 16, 4, 10, NARROW, normalized=True),
    "narrow": lambda z: z.istft(16, 4, 11),
    "not centred": lambda z: torch.istft(z, 16, 3, window=WINDOW + 1, center=False),
    "length": lambda z: torch.istft(z, 16, 4, window=WINDOW, length=12),
}


def outcome(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    out = function(x)
    real = torch.view_as_real(out) if out.is_complex() else out
    real.square().sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


def compare(function: Callable[[Tensor], Tensor], inputs: list[Tensor]) -> None:
    fast = stator.compile(function, fullgraph=True)
    with log.collect() as recorder:
        for x in inputs:
            expected, got = outcome(function, x), outcome(fast, x)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
            assert got[0].stride() == expected[0].stride()
            assert expected[0].isfinite().all()
    assert len(recorder.of(log.RECOMPILE)) <= 4


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("name", FORWARD)
def test_transforms(name: str, dims: int) -> None:
    compare(FORWARD[name], [torch.randn(*[3][: dims - 1], size) for size in (40, 47, 64, 51)])


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("name", INVERSE)
def test_inverses(name: str, dims: int) -> None:
    compare(INVERSE[name], [torch.randn(*[3][: dims - 1], 9, size, dtype=torch.complex64) for size in (5, 7, 9, 6)])


def test_a_round_trip_of_signals_that_change() -> None:
    def there_and_back(x: Tensor) -> Tensor:
        z = torch.stft(x, 16, 4, window=WINDOW, return_complex=True)
        return torch.istft(z * 2, 16, 4, window=WINDOW, length=x.shape[-1])

    fast = stator.compile(there_and_back, fullgraph=True)
    versions = 0
    for size in (40, 48, 64, 80):
        x = torch.randn(2, size)
        with log.collect() as recorder:
            torch.testing.assert_close(fast(x), there_and_back(x), rtol=1e-4, atol=1e-4)
        versions += bool(recorder.of(log.GRAPH))
    assert versions == 2


@pytest.mark.parametrize("size", [5, 7])
def test_windows_that_do_not_cover_the_signal_raise_as_in_eager(size: int) -> None:
    def back(z: Tensor, window: Tensor) -> Any:
        return torch.istft(z, 16, 4, window=window)

    fast = stator.compile(back, fullgraph=True)
    z = torch.randn(9, size, dtype=torch.complex64)
    torch.testing.assert_close(fast(z, WINDOW), back(z, WINDOW), rtol=1e-4, atol=1e-4)
    for function in (back, fast):
        with pytest.raises(RuntimeError, match="window overlap add min"):
            function(z, WINDOW * 0)
