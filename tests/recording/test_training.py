"""Modules whose calls are recorded, forward and backward: gradients, optimizers, random numbers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.recording.conftest import Machine
from tests.recording.programs import Count, Kept, close, mlp, steps, twins

# ---- modules, gradients and optimizers -------------------------------------------------------------------------------


def test_inference_of_a_module(machine: Machine, recordings: Count) -> None:
    model = mlp(machine).eval()
    compiled = machine.compile(model)
    kept = Kept()
    for mode in (torch.no_grad, torch.inference_mode) * 4:
        x = machine.randn(5, 16)
        with mode():
            kept.take(compiled(x), model(x))
    kept.check()
    assert recordings()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training(machine: Machine, optimizer: Any, to_none: bool, recordings: Count) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    batches = [machine.randn(5, 16) for _ in range(10)]
    found = steps(model, machine.compile(model), batches, optimizer=optimizer, to_none=to_none)
    close(found, steps(twin, twin, batches, optimizer=optimizer, to_none=to_none))
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        close(mine, theirs)
        close(mine.grad, theirs.grad)
    assert recordings() >= 2


def test_a_whole_step_in_one_function(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))

    def step(model: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        loss = model(x).square().mean()
        return (loss.detach(), *torch.autograd.grad(loss, [*model.parameters()]))

    compiled = machine.compile(lambda x: step(model, x))
    kept = Kept()
    for _ in range(8):
        x = machine.randn(5, 16)
        kept.take(compiled(x), step(twin, x))
    kept.check()


def test_batch_norm_in_training(machine: Machine) -> None:
    model, twin = twins(machine, lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    batches = [machine.randn(4, 3, 8, 8) for _ in range(8)]
    close(steps(model, machine.compile(model), batches), steps(twin, twin, batches))
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        close(mine, theirs)


def test_gradients_are_accumulated(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(4):
        for module in (model, twin):
            module.zero_grad()
        for _ in range(3):
            x = machine.randn(5, 16)
            compiled(x).square().sum().backward()
            twin(x).square().sum().backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_backward_twice(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(5):
        x = machine.randn(5, 16)
        for module, call in ((model, compiled), (twin, twin)):
            module.zero_grad()
            loss = call(x).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_several_forwards_before_their_backwards(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(4):
        batches = [machine.randn(5, 16) for _ in range(3)]
        for module, call in ((model, compiled), (twin, twin)):
            module.zero_grad()
            for loss in [call(x).square().sum() for x in batches]:
                loss.backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_gradients_of_inputs_are_kept(machine: Machine) -> None:
    compiled = machine.compile(lambda x, w: (x @ w).tanh())
    w = machine.randn(6, 6, requires_grad=True)
    kept = Kept()
    for _ in range(8):
        x = machine.randn(4, 6, requires_grad=True)
        found = torch.autograd.grad(compiled(x, w).sum(), [x, w])
        kept.take(found, torch.autograd.grad((x @ w).tanh().sum(), [x, w]))
    kept.check()


def test_parameters_are_replaced(machine: Machine) -> None:
    model = mlp(machine)
    compiled = machine.compile(model)
    with torch.no_grad():
        for i in range(12):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
            if i % 3 == 2:
                model[0].weight.data = machine.randn(32, 16)
            if i == 7:
                model.load_state_dict(mlp(machine, seed=5).state_dict())
            if i == 9:
                model[3] = nn.Linear(32, 8).to(machine.device)


def test_a_module_is_copied_and_pickled(machine: Machine) -> None:
    model = mlp(machine).eval()
    compiled = machine.compile(model)
    with torch.no_grad():
        for _ in range(4):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
        other = copy.deepcopy(compiled)
        third = pickle.loads(pickle.dumps(model))
        again = machine.compile(third)
        model[0].weight.mul_(1.5)
        for _ in range(4):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
            close(other(x), third(x))
            close(again(x), third(x))


# ---- random numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eager_random", [False, True])
def test_random_numbers_advance_and_repeat(machine: Machine, eager_random: bool) -> None:
    compiled = machine.compile(lambda x: F.dropout(x, 0.5), options={"eager_random": eager_random})
    x = torch.ones(400, device=machine.device)
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append([compiled(x) for _ in range(6)])
    for one, other in zip(*runs, strict=True):
        assert set(one.unique().tolist()) == {0.0, 2.0}
        assert torch.equal(one, other)
    assert all(not torch.equal(a, b) for a, b in zip(runs[0], runs[0][1:], strict=False))


def test_random_numbers_of_eager(machine: Machine) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.dropout(x, 0.3) + torch.rand_like(x)

    compiled = machine.compile(fn, options={"eager_random": True})
    x = machine.randn(64)
    for seed in range(8):
        torch.manual_seed(seed)
        found = [compiled(x), compiled(x), torch.rand(3, device=machine.device)]
        torch.manual_seed(seed)
        close(found, [fn(x), fn(x), torch.rand(3, device=machine.device)])


def test_backward_has_the_numbers_of_forward(machine: Machine) -> None:
    compiled = machine.compile(lambda x: F.dropout(x * 1.5, 0.5))
    for _ in range(8):
        x = torch.ones(200, device=machine.device, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        close(x.grad, y.detach() / x.detach())
