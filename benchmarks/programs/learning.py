"""Reinforcement learning, meta-learning and contrast: losses of several nets in one step. Neighbours: `program.py`."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from benchmarks.programs.program import program, training


def perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class SoftActorCritic(nn.Module):
    """Two critics, their slow copies, a policy of squashed normal numbers (whose noise is an input), a temperature."""

    def __init__(self, state: int = 24, action: int = 6) -> None:
        super().__init__()
        self.critics = nn.ModuleList(perceptron(state + action, 128, 128, 1) for _ in range(2))
        self.slow = nn.ModuleList(perceptron(state + action, 128, 128, 1) for _ in range(2)).requires_grad_(False)
        self.policy = perceptron(state, 128, 128, 2 * action)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def act(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.policy(state).chunk(2, -1)
        spread = spread.clamp(-10, 2).exp()
        raw = mean + spread * noise
        action = raw.tanh()
        density = torch.distributions.Normal(mean, spread).log_prob(raw) - torch.log(1 - action.square() + 1e-6)
        return action, density.sum(-1)

    def forward(self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor, noise: Tensor) -> Tensor:
        temperature = self.log_temperature.exp()
        with torch.no_grad():
            next_action, density = self.act(after, noise[0])
            both = [net(torch.cat([after, next_action], -1)).squeeze(-1) for net in self.slow]
            target = reward + 0.99 * (torch.minimum(*both) - temperature * density)
        given = torch.cat([state, action], -1)
        critic = sum(F.mse_loss(net(given).squeeze(-1), target) for net in self.critics)
        own, density = self.act(state, noise[1])
        value = torch.minimum(*[net(torch.cat([state, own], -1)).squeeze(-1) for net in self.critics])
        policy = (temperature.detach() * density - value).mean()
        return critic + policy - (self.log_temperature * (density.detach() - 6)).mean()


def transitions(k: int) -> tuple[Any, ...]:
    n = 128 + 64 * k
    return torch.randn(n, 24), torch.rand(n, 6) * 2 - 1, torch.randn(n), torch.randn(n, 24), torch.randn(2, n, 6)


program(SoftActorCritic, transitions, training)


class DeepQ(nn.Module):
    """Convolutions over frames, advantages and a value, the larger of the next step's values as the target."""

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2592, 128),
        )  # fmt: skip
        self.advantage, self.value = nn.Linear(128, actions), nn.Linear(128, 1)

    def values(self, frames: Tensor) -> Tensor:
        x = self.eyes(frames).relu()
        advantage = self.advantage(x)
        found: Tensor = self.value(x) + advantage - advantage.mean(-1, keepdim=True)
        return found

    def forward(self, frames: Tensor, action: Tensor, reward: Tensor, after: Tensor, over: Tensor) -> Tensor:
        chosen = self.values(frames).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            target = reward + 0.99 * self.values(after).amax(1) * ~over
        return F.smooth_l1_loss(chosen, target)


def plays(k: int) -> tuple[Any, ...]:
    n = 8 + 8 * k
    frames = torch.randn(n, 4, 84, 84), torch.randn(n, 4, 84, 84)
    return frames[0], torch.randint(0, 6, (n,)), torch.randn(n), frames[1], torch.rand(n) < 0.1


program(DeepQ, plays, training)


class MetaLearner(nn.Module):
    """Steps of gradient descent inside of the loss, over several tasks, of first order."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(8, 64, 64, 1)

    def forward(self, x: Tensor, y: Tensor, held_x: Tensor, held_y: Tensor) -> Tensor:
        total = x.new_zeros(())
        for task in range(x.shape[0]):
            weights = dict(self.net.named_parameters())
            for _ in range(3):
                loss = F.mse_loss(functional_call(self.net, weights, (x[task],)), y[task])
                slopes = torch.autograd.grad(loss, list(weights.values()))
                weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
            total = total + F.mse_loss(functional_call(self.net, weights, (held_x[task],)), held_y[task])
        return total / x.shape[0]


def tasks(k: int) -> tuple[Any, ...]:
    n = 10 + 5 * k
    return torch.randn(4, n, 8), torch.randn(4, n, 1), torch.randn(4, n, 8), torch.randn(4, n, 1)


program(MetaLearner, tasks, training)


class Contrast(nn.Module):
    """Two views of images, a slow encoder, and a queue of keys that every step overwrites a part of."""

    def __init__(self, width: int = 64, length: int = 512) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 8 * 8, width),
        )  # fmt: skip
        self.slow = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 8 * 8, width),
        ).requires_grad_(False)  # fmt: skip
        self.register_buffer("queue", F.normalize(torch.randn(width, length), dim=0))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        query = F.normalize(self.encoder(one), dim=1)
        with torch.no_grad():
            for ours, theirs in zip(self.encoder.parameters(), self.slow.parameters(), strict=True):
                theirs.mul_(0.99).add_(ours, alpha=0.01)
            key = F.normalize(self.slow(other), dim=1)
        positive = (query * key).sum(-1, keepdim=True)
        negative = query @ self.queue.clone().detach()
        with torch.no_grad():
            self.queue[:, : len(key)] = key.mT
        logits = torch.cat([positive, negative], 1) / 0.07
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))


program(Contrast, lambda k: (torch.randn(16 + 8 * k, 3, 32, 32), torch.randn(16 + 8 * k, 3, 32, 32)), training)
