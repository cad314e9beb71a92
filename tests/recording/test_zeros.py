"""Results that are not differentiated: backward reads zeros for them, which stay where they are and are nobody's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.recording.conftest import Machine
from tests.recording.programs import Count, Kept, close, twins


class Tagger(nn.Module):
    """Gives its loss, and its logits beside, like models of language."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 32), nn.Linear(32, 11)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.inner(x).tanh()
        logits = self.outer(hidden)
        return F.cross_entropy(logits, labels), logits, hidden


def step(model: nn.Module, call: Any, x: Tensor, labels: Tensor, which: int) -> list[Tensor]:
    model.zero_grad()
    results = call(x, labels)
    (results[0] if which == 0 else results[0] + results[which].square().sum()).backward()
    return [results[0].detach(), *[parameter.grad for parameter in model.parameters() if parameter.grad is not None]]


def batch(machine: Machine, rows: int = 6) -> tuple[Tensor, Tensor]:
    return machine.randn(rows, 16), torch.arange(rows, device=machine.device) % 11


def test_the_loss_alone_is_differentiated(machine: Machine, recordings: Count) -> None:
    model, twin = twins(machine, Tagger)
    compiled = machine.compile(model)
    x, labels = batch(machine)
    for number in range(8):
        close(step(model, compiled, x, labels, 0), step(twin, twin, x, labels, 0))
        if number == 3:
            made = recordings()
            copied = machine.fake.copies if machine.fake is not None else 0
    assert recordings() == made <= 4
    if machine.fake is not None:
        assert machine.fake.copies - copied <= 4, "the gradient of the loss may move, and no zeros do"


def test_other_results_are_differentiated_in_turn(machine: Machine) -> None:
    model, twin = twins(machine, Tagger)
    compiled = machine.compile(model)
    for which in (0, 1, 2, 0, 1, 2, 0, 0, 1, 1, 2, 2):
        x, labels = batch(machine)
        close(step(model, compiled, x, labels, which), step(twin, twin, x, labels, which))


def test_sizes_that_change(machine: Machine) -> None:
    model, twin = twins(machine, Tagger)
    compiled = machine.compile(model, dynamic=True)
    for rows in (4, 7, 5, 4, 7, 5, 9, 4, 7, 9, 9):
        x, labels = batch(machine, rows)
        close(step(model, compiled, x, labels, 0), step(twin, twin, x, labels, 0))


def test_a_gradient_of_zeros_is_the_caller_s(machine: Machine) -> None:
    """It is the tangent, which a hook asks for, and the program writes to it."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (x * x).sum(), y + 1, (y + 2).t()

    compiled = machine.compile(fn)
    kept = Kept()
    for _ in range(8):
        x, y = (machine.randn(4, 4, requires_grad=True) for _ in range(2))
        y.register_hook(lambda gradient: None)
        total, _, _ = compiled(x, y)
        total.backward()
        assert y.grad is not None and not y.grad.any()
        y.grad.add_(3)
        close(x.grad, 2 * x.detach())
        kept.take(y.grad, torch.full_like(y, 3))
    kept.check()


class Halved(torch.autograd.Function):
    """Its backward writes to what it is given, which autograd does not forbid."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 0.5

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.add_(1).mul_(0.5)


def test_a_backward_that_writes_to_its_gradient(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 3).sum(), Halved.apply(x)

    compiled = machine.compile(fn, strict=False)
    for _ in range(8):
        x = machine.randn(5, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        compiled(x)[0].backward()
        fn(twin)[0].backward()
        close(x.grad, twin.grad)


def test_nothing_is_lent_to_what_others_capture(machine: Machine) -> None:
    if machine.fake is None:
        pytest.skip("the program captures on a device in test_gpu.py")
    model, twin = twins(machine, Tagger)
    compiled = machine.compile(model)
    for capturing in (False, True, False, False, True, True, False):
        machine.fake.capturing = capturing
        x, labels = batch(machine)
        close(step(model, compiled, x, labels, 0), step(twin, twin, x, labels, 0))
