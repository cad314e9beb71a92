"""Short-time Fourier transforms of signals whose length is symbolic, and their inverse, of the operators eager runs.

PyTorch composes them in C++ by plain numbers, and the inverse asks for data there: whether the windows cover the
signal, which a graph asserts. Neighbour: `composite.py` calls these in place of PyTorch's own functions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stator.fake.tensor import FakeTensor

aten = torch.ops.aten

#: How a transform is divided: PyTorch's numbers for nothing, the root of the count, the count.
_PLAIN, _ROOT, _COUNT = 0, 1, 2

#: What windows have to add up to, at least.
_LEAST = 1e-11


def stft(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """`torch.stft` of real signals."""
    hop, width = _extents(n_fft, hop_length, win_length)
    weights = _window(input, window, n_fft, width)
    if weights is NotImplemented or input.is_complex() or input.dim() not in (1, 2) or align_to_window is not None:
        return NotImplemented
    if return_complex is None or (weights is not None and weights.is_complex()):
        return NotImplemented
    signals = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        signals = F.pad(signals.unsqueeze(0), [n_fft // 2, n_fft // 2], pad_mode).squeeze(0)
    frames = signals.unfold(1, n_fft, hop)
    if weights is not None:
        frames = frames * weights
    norm = _ROOT if normalized else _PLAIN
    out = aten._fft_r2c.default(frames, [2], norm, onesided is None or onesided).transpose(1, 2)
    out = out.squeeze(0) if input.dim() == 1 else out
    return out if return_complex else torch.view_as_real(out)


def istft(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """`torch.istft` to real signals."""
    hop, width = _extents(n_fft, hop_length, win_length)
    weights = _window(input, window, n_fft, width)
    if weights is NotImplemented or not input.is_complex() or input.dim() not in (2, 3) or return_complex:
        return NotImplemented
    if input.device.type != "cpu" or (weights is not None and weights.is_complex()) or not 0 < hop <= width:
        return NotImplemented
    half = onesided if onesided is not None else input.shape[-2] != n_fft
    if input.shape[-2] != (n_fft // 2 + 1 if half else n_fft):
        return NotImplemented
    if weights is None:
        weights = F.pad(_ones(input, width), [(n_fft - width) // 2, n_fft - width - (n_fft - width) // 2])
    spectra = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    channels, count = spectra.shape[0], spectra.shape[1]
    whole = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - n_fft // 2 if center else whole
    if end > whole:
        return NotImplemented
    spectra = spectra if half else spectra[..., : n_fft // 2 + 1]
    frames = aten._fft_c2r.default(spectra, [2], _ROOT if normalized else _COUNT, n_fft) * weights.view(1, 1, n_fft)
    y = aten.unfold_backward.default(frames, [channels, whole], 1, n_fft, hop)[:, start:end]
    squares = weights.pow(2).expand(1, count, n_fft)
    envelope = aten.unfold_backward.default(squares, [1, whole], 1, n_fft, hop)[:, start:end]
    torch._assert_async(envelope.abs().min() >= _LEAST, "window overlap add min: 1")
    out = y / envelope
    return out.squeeze(0) if input.dim() == 2 else out


def _ones(input: Tensor, width: int) -> Tensor:
    real = torch.float64 if input.dtype is torch.complex128 else torch.float32
    return torch.ones(width, dtype=real, device=input.device)


def _extents(n_fft: Any, hop_length: Any, win_length: Any) -> tuple[Any, Any]:
    return n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length


def _window(input: Any, window: Any, n_fft: Any, width: Any) -> Any:
    """The window as wide as a frame; NotImplemented for arguments that eager refuses, or that are symbolic."""
    if not isinstance(input, FakeTensor) or type(n_fft) is not int or type(width) is not int or not 0 < width <= n_fft:
        return NotImplemented
    left = (n_fft - width) // 2
    if window is None:
        return None if width == n_fft else F.pad(_ones(input, width), [left, n_fft - width - left])
    if not isinstance(window, FakeTensor) or window.dim() != 1 or window.shape[0] != width:
        return NotImplemented
    return window if width == n_fft else F.pad(window, [left, n_fft - width - left])
