"""Random programs full of what nearly is attention, or a pattern of a user, give eager's values and gradients."""

from __future__ import annotations

import random

import pytest
import torch

import stator
from stator.base import log
from stator.patterns import attention
from tests.patterns.compiling import registered

STEPS = 9


def program(seed: int, writes: bool):
    """A function of four-dimensional tensors: a list of steps on a pool of values, drawn once."""
    rng = random.Random(seed)
    names = [name for name in ACTIONS if writes or name != "written"] + 4 * ["whole"]
    plan = [(rng.choice(names), [rng.random() for _ in range(6)]) for _ in range(STEPS)]

    for _, draws in plan:
        draws.append(1.0 if writes else 0.0)

    def run(*inputs):
        pool = [x + 0 for x in inputs]
        scores = []
        for action, draws in plan:
            ACTIONS[action](pool, scores, draws)
        return sum(pool), pool[-1], *scores[-1:]

    return run


def pick(values, draw):
    return values[int(draw * len(values))]


def product(pool, scores, d):
    q, k = pick(pool, d[0]), pick(pool, d[1])
    s = q @ (k.transpose(-1, -2) if d[2] < 0.6 else k.permute(0, 1, 3, 2))
    scores.append([lambda: s, lambda: s * 0.5, lambda: s / 2.0, lambda: 0.25 * s][int(d[3] * 4)]())


def masked(pool, scores, d):
    if not scores:
        return
    s, mask = pick(scores, d[0]), torch.arange(5.0)[None]
    keep = mask > 5 * d[1] - 1
    choice = int(d[2] * 6)
    if choice == 0:
        s = s + mask
    elif choice == 1:
        s = mask + s + torch.arange(5.0)[:, None]
    elif choice == 2:
        s = s.masked_fill(~keep, -1e33)
    elif choice == 3:
        s = torch.where(keep, s, torch.finfo(torch.float32).min)
    elif choice == 4 and d[6]:
        s += mask
    else:
        s = s - mask
    scores.append(s)


def weighed(pool, scores, d):
    if not scores:
        return
    s, v = pick(scores, d[0]), pick(pool, d[1])
    p = torch.softmax(s, (-1, -1, -1, -2)[int(d[2] * 4)])
    if d[3] < 0.2:
        scores.append(p)
    if d[4] < 0.15 * d[6]:
        v.mul_(1.25)
    pool.append(p @ v if d[5] < 0.9 else v.transpose(-1, -2) @ p)
    if pool[-1].shape[-2:] != (5, 5):
        pool.pop()


def whole(pool, scores, d):
    own = []
    product(pool, own, d)
    masked(pool, own, [*d[1:6], d[0], d[6]])
    weighed(pool, own[-1:], [0.0, d[5], 0.0, d[2], d[0], d[4], d[6]])
    scores += own[: int(d[1] * 1.25)]


def elementwise(pool, scores, d):
    x, y = pick(pool, d[0]), pick(pool, d[1])
    choice = int(d[2] * 5)
    pool.append(
        [lambda: x.tanh() * y + x, lambda: x - y, lambda: x.tanh() + y * 0.5, x.contiguous, lambda: x.mT][choice]()
    )


def written(pool, scores, d):
    x = pick(pool, d[0])
    if d[1] < 0.5:
        x[0].mul_(0.5)
    else:
        pool[int(d[2] * len(pool))] = x.add_(0.125)


ACTIONS = {f.__name__: f for f in (product, masked, weighed, whole, elementwise, written)}


def gated(x, y):
    return torch.tanh(x) * y + x


def same_gated(x, y):
    return torch.addcmul(x, x.tanh(), y)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_random_programs(monkeypatch, grad) -> None:
    monkeypatch.setattr(attention, "LARGE", -(1 << 40))
    monkeypatch.setattr(attention, "HEADS", 0)
    replaced = refused = 0
    example = torch.randn(1, 2, 5, 5)
    with registered(gated, same_gated, (example, example)):
        for seed in range(20):
            torch.manual_seed(seed)
            function = program(seed, writes=not grad)
            inputs = [torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=grad) for _ in range(3)]
            stator.reset()
            expected = function(*inputs)
            with log.collect() as recorder:
                found = stator.compile(function)(*inputs)
            facts = recorder.of(log.PATTERN)
            replaced += sum(not fact["refused"] for fact in facts)
            refused += sum(bool(fact["refused"]) for fact in facts)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
            if grad:
                gradients = torch.autograd.grad(sum(x.sin().sum() for x in expected), inputs, allow_unused=True)
                mine = torch.autograd.grad(sum(x.sin().sum() for x in found), inputs, allow_unused=True)
                torch.testing.assert_close(mine, gradients, rtol=1e-5, atol=1e-5)
    least = 3 if grad else 20  # in training, attention with a mask is refused
    assert replaced > least and refused > 20, (replaced, refused)
