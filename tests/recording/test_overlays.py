"""Gradients in the memory of activations: nobody sees it but by what a step takes; where it would be seen, it ends."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import stator
from stator.recording import overlays
from stator.recording.overlays import laid_bytes
from stator.recording.policy import Policy
from tests.recording.conftest import Machine
from tests.recording.programs import Count
from tests.recording.runs import Run, Scenario, Tower, accumulate, clear_first, clear_last, places, same

# ---- loops that programs have ----------------------------------------------------------------------------------------


def clear_between(run: Run) -> None:
    for i in range(9):
        loss, _ = run.call(run.batch(i))
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        run.note(loss, *run.gradients())


def clear_in_place(run: Run) -> None:
    for i in range(9):
        run.optimizer.zero_grad(set_to_none=False)
        loss, _ = run.call(run.batch(i))
        loss.backward()
        run.optimizer.step()
        run.note(loss, *run.gradients())


def keep_gradients(run: Run) -> None:
    kept: list[Any] = []
    for i in range(8):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        loss.backward()
        run.optimizer.step()
        kept.append(run.gradients())
        run.note(*[gradient for gradients in kept for gradient in gradients])


@pytest.mark.parametrize("scenario", [clear_first, clear_last, clear_in_place])
def test_gradients_lie_over_activations(
    scenario: Scenario, machine: Machine, recordings: Count, policies: Callable[[], list[Policy]]
) -> None:
    run = same(machine, scenario)
    laid = laid_bytes(places(policies()))
    assert laid > sum(p.nbytes for p in run.module.parameters()) / 2
    made = recordings()
    scenario(run)
    assert recordings() == made <= 6 and laid_bytes(places(policies())) == laid


@pytest.mark.parametrize("scenario", [clear_between, accumulate, keep_gradients])
def test_gradients_that_are_there_at_the_next_forward(
    scenario: Scenario, machine: Machine, recordings: Count, policies: Callable[[], list[Policy]]
) -> None:
    """They have memory of their own then, after a few calls, and nothing is kept of that in which they were."""
    run = same(machine, scenario)
    found = places(policies())
    assert laid_bytes(found) == 0 and not any(place.covered for place in found)
    made = recordings()
    run.optimizer.zero_grad()
    scenario(run)
    assert recordings() <= made + 2  # where all of them are kept they are given as copies


@pytest.mark.usefixtures("few_objects")
def test_memory_of_before_goes_back(machine: Machine, policies: Callable[[], list[Policy]]) -> None:
    """A program that accumulates takes what it takes where gradients never lie over activations."""

    def taken() -> int:
        gc.collect()
        known = [places for p in policies() for v in p._by_key.values() for places in v.places.values()]
        return sum(place.nbytes for places in known for place in places)

    run = same(machine, accumulate)
    found = taken()
    del run
    stator.reset()
    gc.collect()
    overlays.LEAST = 1 << 40
    run = same(machine, accumulate)
    assert run.seen and found == taken() > 0


# ---- who has activations ---------------------------------------------------------------------------------------------


def keep_graph(run: Run) -> None:
    for i in range(6):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        loss.backward(retain_graph=True)
        run.note(*run.gradients())
        loss.backward(retain_graph=i % 2 == 0)
        run.note(loss, *run.gradients())
        if i % 2 == 0:
            loss.backward()
            run.note(*run.gradients())


def keep_hidden(run: Run) -> None:
    kept = []
    for i in range(8):
        run.optimizer.zero_grad()
        loss, hidden = run.call(run.batch(i))
        if i > 2:
            kept.append(hidden)
        loss.backward()
        run.note(loss, *run.gradients(), *kept)


def keep_hidden_during_backward(run: Run) -> None:
    for i in range(8):
        run.optimizer.zero_grad()
        loss, hidden = run.call(run.batch(i))
        view = hidden.detach()[3:5]
        del hidden
        loss.backward()
        run.note(loss, view, *run.gradients())


def differentiate_both(run: Run) -> None:
    for i in range(8):
        run.optimizer.zero_grad()
        loss, hidden = run.call(run.batch(i))
        total = loss + hidden.cos().sum() if i % 2 else loss
        del hidden, loss
        total.backward()
        run.note(total, *run.gradients())


def read_what_is_saved(run: Run) -> None:
    for i in range(8):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        saved = list(loss.grad_fn.saved_tensors) if i % 2 else []  # type: ignore[union-attr]
        loss.backward()
        run.note(loss, *run.gradients(), *saved)


def refer_weakly_to_what_is_saved(run: Run) -> None:
    for i in range(6):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        seen = [weakref.ref(tensor) for tensor in loss.grad_fn.saved_tensors]  # type: ignore[union-attr]
        loss.backward()
        run.note(loss, *run.gradients(), *[item() for item in seen if item() is not None])


def several_at_once(run: Run) -> None:
    for i in range(6):
        run.optimizer.zero_grad()
        losses = [run.call(run.batch(2 * i + k))[0] for k in range(2)]
        for loss in losses if i % 2 else losses[::-1]:
            loss.backward()
            run.note(loss, *run.gradients())


def without_backward(run: Run) -> None:
    waiting = []
    for i in range(9):
        run.optimizer.zero_grad()
        loss, hidden = run.call(run.batch(i))
        if i % 3 == 0:
            waiting.append((loss, hidden))
            continue
        loss.backward()
        run.note(loss, hidden, *run.gradients())
    for loss, hidden in waiting:
        loss.backward()
        run.note(loss, hidden, *run.gradients())


def grad_of_some(run: Run) -> None:
    wanted = [run.module.head.weight, run.module.blocks[0].up.weight]  # type: ignore[union-attr,index]
    kept: list[Tensor] = []
    for i in range(9):
        x = run.batch(i, requires_grad=i % 2 == 0)
        loss, _ = run.call(x)
        found = torch.autograd.grad(loss, [*wanted, x] if x.requires_grad else wanted)
        run.note(loss, x, *found)
        if i > 5:
            kept += found
        run.note(*kept)


def second_derivatives(run: Run) -> None:
    for i in range(6):
        x = run.batch(i, requires_grad=True)
        loss, _ = run.call(x)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        slope.square().sum().backward()
        run.note(loss, slope, *run.gradients())
        run.optimizer.zero_grad()
        loss, _ = run.call(x)
        loss.backward()
        run.note(loss, *run.gradients())
        run.optimizer.zero_grad()


def checkpointed(run: Run) -> None:
    for i in range(6):
        run.optimizer.zero_grad()
        x = run.batch(i, requires_grad=True)
        loss, _ = checkpoint(run.call, x, use_reentrant=i % 3 == 2)
        loss.backward()
        run.note(loss, x.grad, *run.gradients())


def hooks_see_gradients(run: Run) -> None:
    kept: list[Tensor] = []
    hooks = [p.register_hook(lambda g: kept.append(g) or g * 2) for p in run.module.parameters()]
    for i in range(6):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        loss.backward()
        run.note(loss, *sorted(kept, key=lambda g: (g.shape, float(g.sum()))), *run.gradients())
        if i % 2 == 0:
            kept.clear()
    for hook in hooks:
        hook.remove()


def saved_elsewhere(run: Run) -> None:
    for i in range(6):
        run.optimizer.zero_grad()
        packed: list[Tensor] = []
        pack = [lambda t: t.clone(), lambda t: packed.append(t) or t][i % 2]  # noqa: B023
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss, _ = run.call(run.batch(i))
        loss.backward()
        run.note(loss, *run.gradients(), *packed)


def gradients_go_in_again(run: Run) -> None:
    x = run.batch(0, requires_grad=True)
    slope = torch.ones(64, 16, device=x.device)
    for _ in range(8):
        _, hidden = run.call(x)
        (slope,) = torch.autograd.grad(hidden, x, slope)
        slope = slope / slope.norm() if slope.norm() > 100 else slope
        run.note(slope)


@pytest.mark.parametrize(
    "scenario",
    [
        keep_graph,
        keep_hidden,
        keep_hidden_during_backward,
        differentiate_both,
        read_what_is_saved,
        refer_weakly_to_what_is_saved,
        several_at_once,
        without_backward,
        grad_of_some,
        second_derivatives,
        checkpointed,
        hooks_see_gradients,
        saved_elsewhere,
        gradients_go_in_again,
    ],
)
def test_what_others_have_stays(scenario: Scenario, machine: Machine, recordings: Count) -> None:
    run = same(machine, scenario)
    made = recordings()
    scenario(run)
    assert recordings() - made <= 8


def test_an_activation_that_is_held_is_left_alone_and_others_are_not(
    machine: Machine, policies: Callable[[], list[Policy]]
) -> None:
    same(machine, keep_hidden_during_backward)
    assert laid_bytes(places(policies())) > 0


def test_a_program_that_begins_to_hold_activations(machine: Machine, recordings: Count) -> None:
    """Once it is left alone, backward is recorded for good."""

    def scenario(run: Run) -> None:
        clear_first(run)
        keep_hidden_during_backward(run)
        clear_first(run)

    run = same(machine, scenario)
    made = recordings()
    scenario(run)
    assert recordings() == made


# ---- what saved memory is --------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """Activations that are parts of one memory, and results that are saved."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT / 4).softmax(-1)
        y = self.out((scores @ v).sigmoid() * q.exp())
        return y.square().mean(), y


def test_activations_share_memory(machine: Machine) -> None:
    same(machine, clear_first, Shared)
    same(machine, keep_hidden, Shared)


class Recurrent(nn.Module):
    """Saves what it is given, which may be what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x.sin() * self.outer((self.inner(x) * 0.5).tanh())
        return y


def test_inputs_are_not_written(machine: Machine) -> None:
    def scenario(run: Run) -> None:
        fixed = run.batch(100, requires_grad=True)
        for i in range(8):
            run.optimizer.zero_grad()
            x = fixed if i % 2 else run.batch(i)
            y = run.call(run.call(run.call(x)))
            y.square().mean().backward()
            run.note(x, y, *run.gradients())

    same(machine, scenario, Recurrent)


def test_inputs_that_are_results_and_views(machine: Machine) -> None:
    def scenario(run: Run) -> None:
        for i in range(8):
            run.optimizer.zero_grad()
            x = run.batch(i, rows=96)
            first = run.call(x[:64])
            second = run.call(first.t()[:, :16] if i % 2 else x[32:])
            (first.sum() + second.square().sum()).backward()
            run.note(x, first, second, *run.gradients())

    same(machine, scenario, Recurrent)


class Tied(nn.Module):
    """Weights that are activations of nobody, and a gradient that is what was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 16)
        self.scale = nn.Parameter(torch.randn(64, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.table((x[:, 0].abs() * 10).long() % 40).tanh()
        scaled = hidden * self.scale
        return (scaled @ self.table.weight.t()).logsumexp(-1).mean() + scaled.sum(), hidden


def test_gradients_that_are_activations(machine: Machine) -> None:
    same(machine, clear_first, Tied)
    same(machine, accumulate, Tied)


def test_sizes_that_change(machine: Machine) -> None:
    def scenario(run: Run) -> None:
        for i, rows in enumerate((40, 24, 40, 24, 40, 24, 33, 40, 33, 24, 40, 33)):
            run.optimizer.zero_grad()
            loss, _ = run.call(run.batch(i, rows=rows))
            loss.backward()
            run.note(loss, *run.gradients())

    same(machine, scenario, dynamic=True)


def test_two_pairs_in_a_chain(machine: Machine, policies: Callable[[], list[Policy]]) -> None:
    """The gradient that one backward graph gives is what the next one takes."""
    torch.manual_seed(0)
    modules = [Tower(depth=2), Tower(depth=2)]
    twins = copy.deepcopy(modules)
    seen: list[list[Tensor]] = []
    recording = [Run(machine, module, machine.compile(module)) for module in modules]  # alive until the end
    plain = [Run(machine, module, stator.compile(module)) for module in twins]
    for runs in (recording, plain):
        for i in range(8):
            for run in runs:
                run.optimizer.zero_grad()
            x = runs[0].batch(i, requires_grad=True)
            one, hidden = runs[0].call(x)
            two, last = runs[1].call(hidden)
            if i % 3:
                del hidden
            (one + two).backward()
            for run in runs:
                run.note(one, two, last, x.grad, *run.gradients())
                run.optimizer.step()
        seen.append([tensor for run in runs for tensor in run.seen])
    for found, expected in zip(*seen, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)
    assert laid_bytes(places(policies())) > 0
