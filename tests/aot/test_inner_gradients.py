"""Gradients that a program asks for inside: numbers of the compiled graph beside eager's, and one graph for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stator
from stator.base.errors import CaptureError
from stator.capture.values.autograd import gradients as gradients_inside


@pytest.fixture(autouse=True)
def from_scratch() -> Iterator[None]:
    stator.reset()
    torch.manual_seed(7)
    yield


def whole(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return stator.compile(function, fullgraph=True, **options)  # type: ignore[no-any-return]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [p.grad for p in model.parameters()]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-6)


def penalty(model: nn.Module, real: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """The loss of a critic with a penalty on the length of its gradient between the two."""
    part = torch.linspace(0, 1, len(real)).unsqueeze(1)
    between = (part * real + (1 - part) * made).requires_grad_()
    score = model(between)
    (slope,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True, retain_graph=True)
    return model(made).mean() - model(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradient_penalty(dynamic: bool) -> None:
    model = network()
    twin = deepcopy(model)
    compiled = whole(penalty, dynamic=dynamic)
    for rows in (4, 5, 9):
        real, made = torch.randn(rows, 6), torch.randn(rows, 6)
        found, expected = compiled(model, real, made), penalty(twin, real, made)
        close(found, expected)
        found.backward()
        expected.backward()
        close(gradients(model), gradients(twin))


def test_forces_from_energies() -> None:
    model = network()
    twin = deepcopy(model)

    def loss(model: nn.Module, places: torch.Tensor, forces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places.requires_grad_()
        energy = model(places).sum()
        found = -torch.autograd.grad(energy, places, create_graph=True)[0]
        return F.mse_loss(found, forces), found.detach()

    compiled = whole(loss)
    for _ in range(3):
        places, forces = torch.randn(4, 6), torch.randn(4, 6)
        again = places.clone()
        found, expected = compiled(model, places, forces), loss(twin, again, forces)
        close(found, expected)
        found[0].backward()
        expected[0].backward()
        close(gradients(model), gradients(twin))
        close(places.grad, again.grad)
        assert places.requires_grad and places.is_leaf


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_steps_of_training(name: str) -> None:
    model = network()
    twin = deepcopy(model)
    optimizer, other = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](twin.parameters())

    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    compiled = whole(step)
    for _ in range(6):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        found, expected = compiled(model, optimizer, x, y), step(twin, other, x, y)
        close(found, expected)
        assert found.requires_grad and not found.is_leaf
        close(list(model.parameters()), list(twin.parameters()))
        close(gradients(model), gradients(twin))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        found.backward()


def test_accumulated_under_autocast_and_dropout() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    twin = deepcopy(model)

    def two(model: nn.Module, x: torch.Tensor) -> None:
        for part in x.chunk(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(part).float().square().mean()
            loss.backward()

    compiled = whole(two, options={"eager_random": True})
    for seed in range(3):
        x = torch.randn(8, 6)
        torch.manual_seed(seed)
        compiled(model, x)
        torch.manual_seed(seed)
        two(twin, x)
        torch.testing.assert_close(gradients(model), gradients(twin), rtol=2e-2, atol=1e-3)


def test_what_is_computed_again_keeps_two_graphs() -> None:
    layer = nn.Linear(6, 6)

    def kept(x: torch.Tensor) -> None:
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()

    with pytest.raises(CaptureError, match="computed again"):
        whole(kept)(torch.randn(2, 6))
    with pytest.raises(CaptureError, match="computed again"):
        whole(lambda x: layer(x).sum().backward(), options={"activation_memory_budget": 0.5})(torch.randn(2, 6))


@pytest.mark.parametrize("dynamic", [False, True])
def test_large_steps_keep_two_graphs(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(6, 6)
    step = whole(lambda x: layer(x).sin().sum().backward(), dynamic=dynamic)
    monkeypatch.setattr(gradients_inside, "MOST_RECORDED", 4 * (2 * 30 + 1))
    step(torch.randn(5, 6))
    stator.reset()
    monkeypatch.setattr(gradients_inside, "MOST_RECORDED", 4 * 2 * 30)
    with pytest.raises(CaptureError, match="computed again"):
        whole(lambda x: layer(x).sin().sum().backward(), dynamic=dynamic)(torch.randn(5, 6))


def test_a_history_outside_is_not_cut() -> None:
    weight = torch.randn(3, requires_grad=True)

    def inside(x: torch.Tensor) -> torch.Tensor:
        (x * weight).sum().backward()
        return x * 2

    compiled = stator.compile(inside)
    first = torch.randn(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(first * weight)
    assert any("goes on outside" in str(item.message) for item in caught)
    expected = torch.autograd.grad((first * weight * weight).sum(), (first, weight))
    close((first.grad, weight.grad), expected)


def _through_a_break(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return torch.autograd.grad(torch.masked_select(x, mask).mean(), [x], allow_unused=True)


def _of_what_another_is_made_of(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.autograd.grad((y * 2).sum(), [x], allow_unused=True)


def _of_both(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.autograd.grad((x * y).sum(), [x], allow_unused=True)


@pytest.mark.parametrize("function", [_through_a_break, _of_what_another_is_made_of, _of_both])
def test_a_way_that_leaves_the_graph_is_found(function: Callable[..., Any]) -> None:
    """The input is no leaf, nor is the other, whose history has it: the gradient is not None."""
    x = torch.randn(5, requires_grad=True).clone()
    other: Callable[[], torch.Tensor] = (lambda: x > 0) if function is _through_a_break else x.sin
    expected = function(x, other())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(stator.compile(function)(x, other()), expected)


def test_hooks_that_come_later_are_run() -> None:
    weight = torch.randn(3, requires_grad=True)
    compiled = stator.compile(lambda x: (x * weight).sum().backward())
    compiled(torch.ones(3))
    weight.grad = None
    weight.register_hook(lambda gradient: gradient * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.ones(3))
    close(weight.grad, torch.full((3,), 5.0))


def test_options_of_linear_cross_entropy() -> None:
    if not hasattr(nn, "LinearCrossEntropyOptions"):
        pytest.skip("nn.LinearCrossEntropyOptions is new in torch 2.13")
    chunks = nn.LinearCrossEntropyOptions(allow_retain_graph=True, batch_chunk_size=2, chunking_method=None)
    target = torch.tensor([1, 0, 2, 2])

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear_cross_entropy(x, weight, target, options=chunks)

    x, weight = torch.randn(4, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    expected = loss(x, weight)  # which loads a module that is only needed here
    found = whole(loss)(x, weight)
    close(found, expected)
    close(torch.autograd.grad(found, (x, weight)), torch.autograd.grad(expected, (x, weight)))
