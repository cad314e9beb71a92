"""Images: segmentation, detection, diffusion, adversarial training, higher resolution. Neighbours: `program.py`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.programs.program import program, training


def twice(a: int, b: int) -> nn.Sequential:
    """Two convolutions with batch norms."""
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
        nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
    )  # fmt: skip


class Segmentation(nn.Module):
    """A U-net: down by pooling, up by interpolation, joined at each level; cross entropy plus a dice loss."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [width * 2**k for k in range(4)]
        self.first = twice(3, width)
        self.down = nn.ModuleList(twice(a, b) for a, b in itertools.pairwise(sizes))
        self.up = nn.ModuleList(twice(a + b, a) for a, b in itertools.pairwise(sizes))
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.first(x)
        skips = []
        for layer in self.down:
            skips.append(x)
            x = layer(F.max_pool2d(x, 2))
        for layer in reversed(self.up):
            skip = skips.pop()
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            dy, dx = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            x = layer(torch.cat([skip, F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], 1))
        scores = self.out(x)
        probability = scores.softmax(1)
        wanted = F.one_hot(mask, 2).permute(0, 3, 1, 2).to(scores.dtype)
        overlap = 2 * (probability * wanted).sum((2, 3)) + 1e-6
        dice = overlap / (probability.sum((2, 3)) + wanted.sum((2, 3)) + 1e-6)
        return F.cross_entropy(scores, mask) + 1 - dice.mean()


def masked(k: int) -> tuple[Any, ...]:
    side = 72 + 24 * k
    return torch.randn(2, 3, side, side), torch.randint(0, 2, (2, side, side))


program(Segmentation, masked, training)


class Detector(nn.Module):
    """One scale of a detector: boxes from anchors, overlaps with the true boxes, focal and box losses."""

    def __init__(self, anchors: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.features = nn.Sequential(twice(3, 16), nn.MaxPool2d(2), twice(16, 32), nn.MaxPool2d(2), twice(32, 64))
        self.head = nn.Conv2d(64, anchors * (4 + classes), 1)
        self.register_buffer("sizes", torch.tensor([[8.0, 8], [12, 6], [6, 12], [16, 16], [24, 12], [12, 24]]))

    def boxes(self, height: int, width: int) -> Tensor:
        y = (torch.arange(height, device=self.sizes.device) + 0.5) * 4
        x = (torch.arange(width, device=self.sizes.device) + 0.5) * 4
        centre = torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).view(-1, 1, 2).to(self.sizes.dtype)
        return torch.cat([centre.expand(-1, len(self.sizes), 2), self.sizes.expand(len(centre), -1, -1)], -1).view(
            -1, 4
        )

    def forward(self, image: Tensor, truth: Tensor, labels: Tensor) -> Tensor:
        raw = self.head(self.features(image))
        batch, _, height, width = raw.shape
        raw = raw.permute(0, 2, 3, 1).reshape(batch, -1, 4 + self.classes)
        anchors = self.boxes(height, width)
        centre = anchors[:, :2] + raw[..., :2].tanh() * anchors[:, 2:]
        size = anchors[:, 2:] * raw[..., 2:4].clamp(max=2).exp()
        found = torch.cat([centre - size / 2, centre + size / 2], -1)
        corner = torch.maximum(found[:, :, None, :2], truth[:, None, :, :2])
        other = torch.minimum(found[:, :, None, 2:], truth[:, None, :, 2:])
        inside = (other - corner).clamp(min=0).prod(-1)
        area = (found[..., 2:] - found[..., :2]).prod(-1)[:, :, None]
        union = area + (truth[..., 2:] - truth[..., :2]).prod(-1)[:, None] - inside
        overlap, best = (inside / union).max(-1)
        positive = (overlap > 0.3).to(raw.dtype)
        wanted = F.one_hot(labels.gather(1, best), self.classes).to(raw.dtype) * positive[..., None]
        logits = raw[..., 4:]
        cross = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        confidence = torch.exp(-cross)
        focal = ((1 - confidence) ** 2 * cross).sum() / positive.sum().clamp(min=1)
        matched = truth.gather(1, best[..., None].expand(-1, -1, 4))
        box = (F.smooth_l1_loss(found, matched, reduction="none") * positive[..., None]).mean()
        return focal + box


def pictures(k: int) -> tuple[Any, ...]:
    side = 64 + 32 * k
    corner = torch.rand(2, 5, 2) * side * 0.6
    truth = torch.cat([corner, corner + 4 + torch.rand(2, 5, 2) * side * 0.3], -1)
    return torch.randn(2, 3, side, side), truth, torch.randint(0, 10, (2, 5))


program(Detector, pictures, training)


class Denoiser(nn.Module):
    """A net that removes noise, told the time by sines, and the loop of a sampler around it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def noise(self, x: Tensor, step: Tensor) -> Tensor:
        half = self.width // 2
        rate = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000) / half)).to(x.dtype)
        angle = step[:, None].to(x.dtype) * rate
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        x = self.enter(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + conv(F.silu(norm(x) + time[:, :, None, None]))
        flat = x.flatten(2).mT
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].mT.reshape(x.shape)
        return self.leave(x)

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50, dtype=x.dtype), 0)
        for i in range(40, -1, -10):
            found = self.noise(x, torch.full((len(x),), i))
            now, before = kept[i], kept[i - 10] if i else kept.new_ones(())
            clean = (x - (1 - now).sqrt() * found) / now.sqrt()
            x = before.sqrt() * clean.clamp(-1, 1) + (1 - before).sqrt() * found
        return x


program(Denoiser, lambda k: (torch.randn(2 + k, 3, 16, 16),))


class Adversaries(nn.Module):
    """A generator of images and its critic, and both their losses."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(32, 4 * width, 4), nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.critic = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * width, 1, 4),
        )  # fmt: skip

    def forward(self, real: Tensor, seed: Tensor) -> Tensor:
        fake = self.generator(seed)
        of_real, of_fake = self.critic(real).flatten(), self.critic(fake.detach()).flatten()
        one, none = torch.ones_like(of_real), torch.zeros_like(of_fake)
        critic = F.binary_cross_entropy_with_logits(of_real, one) + F.binary_cross_entropy_with_logits(of_fake, none)
        return critic + F.binary_cross_entropy_with_logits(self.critic(fake).flatten(), torch.ones_like(of_fake))


program(Adversaries, lambda k: (torch.randn(8 + 8 * k, 3, 16, 16), torch.randn(8 + 8 * k, 32, 1, 1)), training)


class HigherResolution(nn.Module):
    """Residual blocks, then pixels shuffled into a larger image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(4)
        )
        self.grow = nn.Conv2d(width, 3 * 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        start = x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return F.pixel_shuffle(self.grow(x + start), 2).clamp(0, 1)


program(HigherResolution, lambda k: (torch.randn(1, 3, 48 + 16 * k, 48 + 16 * k),))
