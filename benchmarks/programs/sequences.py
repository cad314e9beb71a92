"""Speech, separation and synthesis: recurrent nets over time. Neighbours: `program.py`."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.programs.program import program, training


class AcousticModel(nn.Module):
    """Convolutions over a spectrogram, two bidirectional LSTMs, a score for each letter and step."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 16, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (7, 5), (2, 1), (3, 2)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.recurrent = nn.LSTM(16 * 16, 128, 2, bidirectional=True)
        self.letters = nn.Linear(256, 29)

    def forward(self, spectrogram: Tensor, letters: Tensor) -> Tensor:
        x = self.front(spectrogram)
        batch, channels, height, time = x.shape
        x = x.view(batch, channels * height, time).permute(2, 0, 1)
        scores = self.letters(self.recurrent(x)[0]).log_softmax(-1)
        return F.nll_loss(scores.permute(1, 2, 0), letters)


program(AcousticModel, lambda k: (torch.randn(4, 1, 64, 80 + 20 * k), torch.randint(0, 29, (4, 40 + 10 * k))), training)


class Separator(nn.Module):
    """Strided convolutions with gated units, an LSTM in the middle, transposed convolutions back, and skips."""

    def __init__(self, depth: int = 3, width: int = 16) -> None:
        super().__init__()
        sizes = [2, *[width * 2**k for k in range(depth)]]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1))
            for a, b in itertools.pairwise(sizes)
        )
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4))
            for a, b in itertools.pairwise(sizes)
        )
        self.recurrent = nn.LSTM(sizes[-1], sizes[-1], 2, bidirectional=True)
        self.merge = nn.Linear(2 * sizes[-1], sizes[-1])

    def forward(self, mix: Tensor, target: Tensor) -> Tensor:
        x, skips = mix, []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.merge(self.recurrent(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for layer in reversed(self.up):
            skip = skips.pop()
            x = layer(x + skip[..., : x.shape[-1]])
        return F.l1_loss(x, target[..., : x.shape[-1]])


program(Separator, lambda k: (torch.randn(2, 2, 4180 + 1280 * k), torch.randn(2, 2, 4180 + 1280 * k)), training)


class AttentiveDecoder(nn.Module):
    """A decoder in a Python loop: a GRU cell that looks at an encoded text in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(48, 64, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(20 + 128, 128)
        self.query, self.frame = nn.Linear(128, 128), nn.Linear(256, 20)

    def forward(self, text: Tensor, frames: Tensor) -> Tensor:
        memory, _ = self.encoder(text)
        state = memory.new_zeros(len(text), 128)
        frame = memory.new_zeros(len(text), 20)
        found = []
        for step in range(frames.shape[1]):
            weights = torch.softmax((memory @ self.query(state).unsqueeze(-1)).squeeze(-1), -1)
            context = (weights.unsqueeze(-1) * memory).sum(1)
            state = self.cell(torch.cat([frame, context], -1), state)
            found.append(self.frame(torch.cat([state, context], -1)))
            frame = frames[:, step]
        return F.mse_loss(torch.stack(found, 1), frames)


program(AttentiveDecoder, lambda k: (torch.randn(8, 30 + 10 * k, 48), torch.randn(8, 24, 20)), training)


class SpeakerEmbedding(nn.Module):
    """LSTMs with projections over a window, and a normalised vector at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(n, 192, proj_size=64, batch_first=True) for n in (40, 64))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
        return F.normalize(x[:, -1], dim=1)


program(SpeakerEmbedding, lambda k: (torch.randn(8 + 4 * k, 40, 40),))
