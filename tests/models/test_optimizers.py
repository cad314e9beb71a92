"""`optimizer.step()` compiled whole: ten steps of every kind, weights and state as eager's, in float64.

One graph makes the state and one finds it; a learning rate that changes with every step makes no more than one other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, optim

import stator
from stator.base.options import Options
from stator.driver import compile_graph

STEPS = 10
Make = Callable[[Any], optim.Optimizer]

#: Whole in one graph.
KINDS: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "sgd nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False),
    "sgd foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True),
    "sgd maximize": lambda p: optim.SGD(p, lr=1e-3, momentum=0.9, maximize=True, foreach=True),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adam foreach": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1, foreach=True),
    "adam amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "adam amsgrad foreach": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, foreach=True),
    "adam with a tensor for its rate": lambda p: optim.Adam(p, lr=torch.tensor(0.1)),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "adamw foreach": lambda p: optim.AdamW(p, lr=0.1, foreach=True),
    "adamw maximize": lambda p: optim.AdamW(p, lr=0.1, maximize=True),
    "adamw groups": lambda p: optim.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.01}], lr=0.1),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01, weight_decay=0.01),
    "adagrad foreach": lambda p: optim.Adagrad(p, lr=0.1, foreach=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
    "rmsprop foreach": lambda p: optim.RMSprop(p, lr=0.01, weight_decay=0.01, foreach=True),
    "rmsprop centered": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9, weight_decay=0.01),
    "rmsprop centered foreach": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9, foreach=True),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "nadam foreach": lambda p: optim.NAdam(p, lr=0.01, foreach=True),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "adadelta foreach": lambda p: optim.Adadelta(p, lr=0.1, foreach=True),
    "rprop": lambda p: optim.Rprop(p, lr=0.1),
    "rprop foreach": lambda p: optim.Rprop(p, lr=0.1, foreach=True),
    "sgd fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "adam fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "adamw fused": lambda p: optim.AdamW(p, lr=0.1, fused=True),
    "adagrad fused": lambda p: optim.Adagrad(p, lr=0.1, fused=True),
    "sgd with a tensor for its rate": lambda p: optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9),
    "adam fused amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True, fused=True),
    "adamw fused, a tensor for its rate": lambda p: optim.AdamW(p, lr=torch.tensor(0.1), fused=True),
    "sgd foreach, a tensor for its rate": lambda p: optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9, foreach=True),
    "adamax foreach": lambda p: optim.Adamax(p, lr=0.01, foreach=True),
}

#: In parts: eager decides by how many steps were made, in Python.
IN_PARTS: dict[str, Make] = {
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.1),
}


class Counted:
    """stator's own backend, that counts graphs."""

    dynamic = True

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return compile_graph(gm, examples, options=Options())


def train(make: Make, compiling: Callable[[Any], Any], scheduled: bool = False) -> list[Any]:
    """The weights after every step, and the state at the end; one parameter never gets a gradient."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
    unused = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = make([*model.parameters(), unused])
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if scheduled else None
    step = compiling(optimizer.step)
    seen = []
    for batch in torch.randn(STEPS, 5, 4, dtype=torch.float64):
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        step()
        if scheduler is not None:
            scheduler.step()
        seen.append([weight.detach().clone() for weight in (*model.parameters(), unused)])
    assert not torch.equal(seen[0][0], seen[-1][0]) and torch.equal(seen[-1][-1], torch.ones_like(unused))
    return [seen, optimizer.state_dict()["state"]]


@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind: str) -> None:
    backend = Counted()
    expected = train(KINDS[kind], lambda step: step)
    found = train(
        KINDS[kind],
        lambda step: stator.compile(step, backend=backend, fullgraph=True, options={"strict": True}),
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert 1 <= backend.graphs <= 2


@pytest.mark.parametrize("kind", ["sgd momentum", "adam", "adamw foreach", "adagrad", "rmsprop", "adamw groups"])
def test_rates_that_change_with_every_step(kind: str) -> None:
    backend = Counted()
    expected = train(KINDS[kind], lambda step: step, scheduled=True)
    found = train(
        KINDS[kind],
        lambda step: stator.compile(step, backend=backend, fullgraph=True, options={"strict": True}),
        scheduled=True,
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert 1 <= backend.graphs <= 3


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("kind", IN_PARTS)
def test_steps_in_parts(kind: str) -> None:
    expected = train(IN_PARTS[kind], lambda step: step)
    found = train(IN_PARTS[kind], lambda step: stator.compile(step, options={"strict": True}))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


#: Eager refuses these on a CPU, a compiled step knows no difference.
CAPTURABLE: dict[str, Callable[[Any, bool], optim.Optimizer]] = {
    "adam": lambda p, c: optim.Adam(p, lr=0.1, capturable=c),
    "adam foreach": lambda p, c: optim.Adam(p, lr=0.1, capturable=c, foreach=True),
    "adamw": lambda p, c: optim.AdamW(p, lr=0.1, capturable=c, amsgrad=True),
    "adamw foreach": lambda p, c: optim.AdamW(p, lr=0.1, capturable=c, foreach=True),
    "rmsprop": lambda p, c: optim.RMSprop(p, lr=0.01, capturable=c, centered=True),
    "rmsprop foreach": lambda p, c: optim.RMSprop(p, lr=0.01, capturable=c, foreach=True),
}


@pytest.mark.parametrize("kind", CAPTURABLE)
def test_capturable_steps(kind: str) -> None:
    make = CAPTURABLE[kind]
    with pytest.raises((RuntimeError, AssertionError), match="capturable"):
        train(lambda p: make(p, True), lambda step: step)
    expected, _ = train(lambda p: make(p, False), lambda step: step)
    found, _ = train(
        lambda p: make(p, True), lambda step: stator.compile(step, fullgraph=True, options={"strict": True})
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)  # a float32 counts the steps
