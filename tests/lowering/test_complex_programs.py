"""Random programs of complex numbers, forward and backward: as near to the exact result as eager is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

Step = Callable[[Tensor, Tensor], Tensor]


def _complex(x: Tensor) -> Tensor:
    return x if x.is_complex() else x * (1 + 0.5j)


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


#: Name → a step over two earlier values of size (4, 5), complex or not.
STEPS: dict[str, Step] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: torch.sub(a, b, alpha=2),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b + (3 + 1j)),
    "neg": lambda a, b: -a,
    "conj": lambda a, b: _complex(a).conj() * 2,
    "exp": lambda a, b: (_complex(a) * 0.1).exp(),
    "reciprocal": lambda a, b: 1 / (_complex(a) + (4 - 2j)),
    "abs": lambda a, b: (_complex(a) + 5).abs(),
    "angle": lambda a, b: (_complex(a) + (7 + 1j)).angle(),
    "real": lambda a, b: _complex(a).real,
    "imag": lambda a, b: _complex(a).imag,
    "polar": lambda a, b: torch.polar(_real(a).abs() + 0.1, _real(a)),
    "complex": lambda a, b: torch.complex(_real(a) * 2, _real(a).flip(0)),
    "where": lambda a, b: torch.where(_real(a) > 0, _complex(a), 2j),
    "scale": lambda a, b: a * (0.3 - 1j),
    "sum": lambda a, b: _complex(a).sum(0, keepdim=True) + _complex(b) * 0.5,
    "mean": lambda a, b: _complex(a).mean(1, keepdim=True) * _complex(b),
    "turned": lambda a, b: _complex(a).t().contiguous().t(),
    "joined": lambda a, b: torch.cat([_complex(a), b], 1)[:, 2:7],
    "wider": lambda a, b: _complex(a).to(torch.complex128),
    "square": lambda a, b: a**2 * 0.1,
    "viewed": lambda a, b: torch.view_as_complex(torch.view_as_real(_complex(a)).sin()),
    "rolled": lambda a, b: _complex(a).roll(1, 0),
    "padded": lambda a, b: F.pad(_complex(a), (1, 0))[:, :-1],
    "replaced": lambda a, b: torch.cat([_complex(a)[:1] * 2j, _complex(b)[1:]]),
    "indexed": lambda a, b: _complex(a)[torch.tensor([2, 0, 1, 1])],
}


def program(seed: int) -> Callable[..., tuple[Tensor, ...]]:
    numbers = random.Random(seed)
    steps = [
        (numbers.choice(list(STEPS)), numbers.randrange(1000), numbers.randrange(1000))
        for _ in range(numbers.randint(4, 10))
    ]

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for name, first, second in steps:
            values.append(STEPS[name](values[first % len(values)], values[second % len(values)]))
        return values[-1], values[-2], (values[-1] * values[len(inputs)]).sum()

    return run


def results(function: Callable[..., Any], inputs: list[Tensor], real: torch.dtype) -> list[Tensor | None]:
    """What it gives, and the gradients, of the inputs in some precision."""
    leaves = [x.to(real.to_complex() if x.is_complex() else real).requires_grad_() for x in inputs]
    outputs = function(*leaves)
    loss = sum([(x.abs() if x.is_complex() else x).sum() for x in outputs])
    return [*outputs, *torch.autograd.grad(loss, leaves, allow_unused=True)]


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_are_as_exact_as_eager(seed: int) -> None:
    torch.manual_seed(seed)
    real = (torch.float32, torch.float64)[seed % 2]
    inputs = [torch.randn(4, 5, dtype=torch.complex128), torch.randn(4, 5, dtype=torch.float64)]
    function = program(seed)
    exact = results(function, inputs, torch.float64)
    eager = results(function, inputs, real)
    ours = results(stator.compile(function, fullgraph=True), inputs, real)
    assert [x is None for x in ours] == [x is None for x in eager]
    for mine, theirs, wanted in zip(ours, eager, exact, strict=True):
        if mine is None or theirs is None or wanted is None:
            continue
        assert mine.dtype is theirs.dtype
        error, usual = (mine - wanted).abs().max(), (theirs - wanted).abs().max()
        assert error <= 4 * usual + 100 * torch.finfo(mine.dtype).eps * wanted.abs().max().clamp(min=1)
