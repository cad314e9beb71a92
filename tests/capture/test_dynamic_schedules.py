"""Numbers as schedules compute them: roots and powers of a step, rounding, numbers in tuples, interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import stator
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import rand

STEPS = (1, 2, 3, 7, 12, 40)
FLOATS = (0.5, 0.75, 2.25, 3.5, 7.0, 40.5)

#: Two versions serve all calls: one for the first number, one for any other.
OF_STEPS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "root": lambda x, k: x * k**0.5,
    "inverse root": lambda x, k: x * k**-0.5,
    "inverse": lambda x, k: x * k**-1,
    "power of a sum": lambda x, k: x * (k + 1) ** 2.5,
    "warm up": lambda x, k: x * min(k**-0.5, k * 4000**-1.5),
    "builtin": lambda x, k: x * pow(k, -0.25) if k else x,
    "part of a cycle": lambda x, k: x * (1 + math.cos(math.pi * k / 100)) * math.floor(1 + k / 100),
}
OF_FLOATS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "root": lambda x, a: x * a**0.5,
    "interpolated": lambda x, a: x.lerp(x * 2, 1 - a) + torch._foreach_lerp([x], [x * 3], a)[0],
    "rounded": lambda x, a: x * (math.floor(a / 100) + math.ceil(a / 100) + math.trunc(a / 100) + round(a / 100)),
}
OF_TUPLES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "items": lambda x, t: x * t[0] + t[1],
    "unpacked": lambda x, t: (lambda a, b: x * a - b)(*t),
    "size": lambda x, t: x.sum() + x.new_zeros(t),
}


def compare(mine: Any, theirs: Any) -> None:
    assert type(mine) is type(theirs)
    if isinstance(mine, tuple):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            compare(one, other)
    elif isinstance(mine, torch.Tensor):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    else:
        assert mine == theirs


def check(program: Callable[..., Any], numbers: Sequence[Any], versions: int) -> None:
    compiled = stator.compile(program, options={"strict": True, "recompile_limit": 32})
    x = rand(3, 2)
    for number in numbers:
        compare(compiled(x, number), program(x, number))
    assert len(versions_of(compiled)) <= versions


@pytest.mark.parametrize("name", OF_STEPS)
def test_steps(name: str) -> None:
    check(OF_STEPS[name], STEPS, 2)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name: str) -> None:
    check(OF_FLOATS[name], FLOATS, 2)


@pytest.mark.parametrize("name", OF_TUPLES)
def test_tuples(name: str) -> None:
    check(OF_TUPLES[name], [(step, 2) for step in STEPS], 2)
    check(lambda x, d: OF_TUPLES[name](x, d["pair"]), [{"pair": (step, 2)} for step in STEPS], 2)


def test_tuples_of_other_shapes_and_types() -> None:
    tuples = [(1, 2), (1.0, 2), (2, 2), (2.5, 2), (True, 2), (7, 8, 9), (1, (2, 3)), (1, (2, 4)), (1, (2, 5)), (3, 2)]
    check(lambda x, t: (x * t[0], len(t), type(t[0]).__name__, t[1]), tuples, 9)
    check(lambda x, t: x * {(1, 2): 3, (2, 2): 4}.get(t, 7), [(i, 2) for i in (1, 2, 3, 2, 1)], 4)
    check(lambda x, t: x * (2 if t == (2, 2) else 3), [(i, 2) for i in (1, 2, 3, 2, 1, 4)], 4)


@pytest.mark.parametrize("exponent", [-1, -0.5, 0.5, 2.5, -2.0, 300.0])
@pytest.mark.parametrize("kind", [int, float])
def test_powers_at_their_edges(kind: type, exponent: float) -> None:
    """What is complex, or raises, is another version."""

    def program(x: torch.Tensor, k: Any) -> Any:
        try:
            found = k**exponent
        except (ZeroDivisionError, OverflowError) as error:
            return type(error).__name__
        return x * found if isinstance(found, float) else (x, found)

    check(program, [kind(k) for k in (1, 2, 5, 0, -1, -2, 7, 0, 1000, 3)], 9)


@pytest.mark.parametrize("function", [math.floor, math.ceil, math.trunc, round])
def test_rounding(function: Callable[[float], int]) -> None:
    def program(x: torch.Tensor, a: float) -> Any:
        try:
            return x * function(a * 2)
        except (ValueError, OverflowError) as error:
            return type(error).__name__

    check(program, [0.1, 0.2, 0.25, 0.3, -0.1, -0.6, 1e10, math.nan, math.inf, 0.15, 0.75, -math.inf], 12)


def one_cycle(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    """It changes the momentum of Adam as well, which is in a tuple."""
    return lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)


def cycle(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False)


def inverse_root(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) ** -0.5)


def losses(make: Callable[[Any], Any], inside: bool, compiling: bool) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    x = torch.randn(8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = make(optimizer)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if inside:
            scheduler.step()
        return loss.detach()

    run = stator.compile(step) if compiling else step
    found = []
    for _ in range(10):
        found.append(run(x).item())
        if not inside:
            scheduler.step()
    assert not compiling or len(versions_of(run)) <= 3
    return found


@pytest.mark.parametrize(
    ("make", "inside"), [(one_cycle, False), (cycle, False), (cycle, True), (inverse_root, False), (inverse_root, True)]
)
def test_schedulers(make: Callable[[Any], Any], inside: bool) -> None:
    found = [losses(make, inside, compiling) for compiling in (False, True)]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
