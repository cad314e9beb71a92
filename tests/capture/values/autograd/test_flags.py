"""`requires_grad` of parameters and inputs, changed inside: before the graph computes with them, and after it has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator.base.errors import FallbackWarning


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def freezes_by_attribute(model: Any, x: Tensor) -> Any:
    for p in model[0].parameters():
        p.requires_grad = False
    return model(x).square().sum()


def freezes_all_but_the_last(model: Any, x: Tensor) -> Any:
    model.requires_grad_(False)
    model[2].requires_grad_(True)
    return model(x).square().sum()


def freezes_and_restores(model: Any, x: Tensor) -> Any:
    before = [p.requires_grad for p in model.parameters()]
    model.requires_grad_(False)
    x = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    for p, flag in zip(model.parameters(), before, strict=True):
        p.requires_grad_(flag)
    return gradient, [p.requires_grad for p in model.parameters()]


def step_of_a_generator(model: Any, x: Tensor) -> Any:
    generator, judge = model[0], model[2]
    judge.requires_grad_(False)
    judge(generator(x).tanh()).square().sum().backward()
    judge.requires_grad_(True)
    return [p.requires_grad for p in model.parameters()]


def freezes_after(model: Any, x: Tensor) -> Any:
    y = model(x).square().sum()
    for p in model[0].parameters():
        p.requires_grad = False
    return y


def changes_its_mind(model: Any, x: Tensor) -> Any:
    model[0].weight.requires_grad_(False)
    model[0].weight.requires_grad_(True)
    y = model(x).square().sum()
    model[0].weight.requires_grad_(False)
    model[0].weight.requires_grad_(True)
    model[0].weight.requires_grad_(False)
    return y


def input_at_the_end(model: Any, x: Tensor) -> Any:
    y = model(x).square().sum()
    x.requires_grad_()
    return y, x.requires_grad


def writes_then_freezes(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        model[0].weight.mul_(0.5)
    model[0].weight.requires_grad_(False)
    return x.sum()


WHOLE = [
    freezes_by_attribute,
    freezes_all_but_the_last,
    freezes_and_restores,
    step_of_a_generator,
    freezes_after,
    changes_its_mind,
    input_at_the_end,
    writes_then_freezes,
]


def used_again(model: Any, x: Tensor) -> Any:
    y = model(x).square().sum()
    model[0].weight.requires_grad_(False)
    return y + model(x).square().sum()


def generator_and_judge(model: Any, x: Tensor) -> Any:
    generator, judge = model[0], model[2]
    judge.requires_grad_(False)
    judge(generator(x).tanh()).square().sum().backward()
    judge.requires_grad_(True)
    judge(generator(x).tanh().detach()).square().mean().backward()
    return x


def differentiated_after(model: Any, x: Tensor) -> Any:
    x = x.detach().clone().requires_grad_()
    y = model(x).square().sum()
    model[0].weight.requires_grad_(False)
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    return gradient.square().sum()


def frozen_with_a_view(model: Any, x: Tensor) -> Any:
    row = model[0].weight[0]
    y = (row * x).sum()
    model[0].weight.requires_grad_(False)
    return y, row.requires_grad, (row * x).sum()


BROKEN = [used_again, generator_and_judge, differentiated_after, frozen_with_a_view]


def outcome(function: Callable[..., Any], model: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Any]]:
    """The tensors that a call gives and leaves behind, and all that is no number."""
    result = function(model, x)
    parts = list(result) if isinstance(result, tuple) else [result]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    for loss in tensors:
        if loss.requires_grad and loss.dim() == 0:
            loss.backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    facts = [part for part in parts if not isinstance(part, Tensor)]
    facts += [[p.requires_grad for p in model.parameters()], x.requires_grad, [g is None for g in gradients]]
    found = [*tensors, *[g for g in gradients if g is not None], *model.parameters()]
    return [tensor.detach().clone() for tensor in found], facts


def compare(function: Callable[..., Any], fast: Callable[..., Any]) -> None:
    """Two calls as they come, and others with flags that somebody has changed in between."""
    eager = network()
    other, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    for change in (None, None, True, False, True):
        if change is not None:
            for model in (eager, other, exact):
                model.requires_grad_(change)
        for rows in (2, 5):
            x = torch.randn(rows, 3)
            flag = change is False
            expected = outcome(function, eager, x.clone().requires_grad_(flag))
            got = outcome(fast, other, x.clone().requires_grad_(flag))
            known = outcome(function, exact, x.double().requires_grad_(flag))
            assert got[1] == expected[1]
            torch.testing.assert_close(got[0], expected[0], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close([t.double() for t in got[0]], known[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", WHOLE, ids=lambda function: function.__name__)
def test_flags_that_change_around_the_graph_do_not_end_it(function: Callable[..., Any]) -> None:
    compare(function, stator.compile(function, fullgraph=True))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", BROKEN, ids=lambda function: function.__name__)
def test_a_tensor_that_is_used_before_and_after_ends_the_graph(function: Callable[..., Any]) -> None:
    report = stator.explain(function)(network(), torch.randn(2, 3))
    assert any("requires_grad_()" in stop.reason for stop in report.breaks)
    compare(function, stator.compile(function))


def test_a_graph_that_raises_leaves_the_flags_to_the_program() -> None:
    def tries(model: Any, x: Tensor, index: Tensor) -> Any:
        before = model.weight.requires_grad
        model.weight.requires_grad_(False)
        y = model(x)[index]
        model.weight.requires_grad_(before)
        return y

    eager = nn.Linear(3, 2)
    other = copy.deepcopy(eager)
    fast = stator.compile(tries, fullgraph=True)
    x = torch.randn(4, 3)
    torch.testing.assert_close(fast(other, x, torch.tensor([1])), tries(eager, x, torch.tensor([1])))
    for _ in range(2):
        for model, function in ((eager, tries), (other, fast)):
            with pytest.raises(IndexError):
                function(model, x, torch.tensor([9]))
        assert eager.weight.requires_grad == other.weight.requires_grad
        eager.requires_grad_(), other.requires_grad_()


def test_a_parameter_that_another_is_a_view_of() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = nn.Parameter(torch.randn(4, 3))
            self.part = self.whole[:2]

        def forward(self, x: Tensor) -> Tensor:
            self.whole.requires_grad_(False)
            return (x @ self.part.t()).sum() + (x @ self.whole.t()).sum()

    eager = Tied()
    x = torch.randn(2, 3)
    expected = eager(x)
    eager.whole.requires_grad_()
    with pytest.warns(FallbackWarning):
        torch.testing.assert_close(stator.compile(eager)(x), expected)


# -- memory ------------------------------------------------------------------------------------------------


def clamped_at_the_end(model: Any, x: Tensor) -> Any:
    y = model(x).square().sum().detach()
    for p in model.parameters():
        p.data = p.data.clamp(-0.2, 0.2)
    return y


def step_by_hand(model: Any, x: Tensor) -> Any:
    loss = model(x).square().sum()
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.data = p.data - 0.1 * p.grad
            p.grad = None
    return loss.detach()


def given_an_input(model: Any, x: Tensor) -> Any:
    y = model(x).sum().detach()
    model[0].bias.data = x[0].repeat(2)[:4].contiguous()
    return y


def input_moved(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        y = model(x)
        x.data = x * 2
    return y


def used_after(model: Any, x: Tensor) -> Any:
    model[0].weight.data = model[0].weight.data.clamp(-0.1, 0.1)
    return model(x).sum().detach()


def read_after(model: Any, x: Tensor) -> Any:
    model[0].weight.data = model[0].weight.data + x.mean()
    return model[0].weight.data.sum()


def of_another_size(model: Any, x: Tensor) -> Any:
    x.data = x.data[:1]
    return x.shape


@pytest.mark.parametrize("function", [clamped_at_the_end, step_by_hand, given_an_input, input_moved])
def test_memory_that_is_given_at_the_end_is_given_after_the_graph(function: Callable[..., Any]) -> None:
    compare(function, stator.compile(function, fullgraph=True))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", [used_after, read_after, of_another_size])
def test_memory_that_the_graph_would_read_ends_it(function: Callable[..., Any]) -> None:
    assert any("data" in stop.reason for stop in stator.explain(function)(network(), torch.randn(2, 3)).breaks)
    compare(function, stator.compile(function))


def test_what_shares_the_old_memory_keeps_it() -> None:
    """A copy into the parameter would be seen by everything that has its memory; other memory is not."""
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    fast = stator.compile(clamped_at_the_end, fullgraph=True)
    for _ in range(2):
        x, before = torch.randn(2, 3), copy.deepcopy(models[0].state_dict())
        kept = [model.state_dict() for model in models]
        for model, function in zip(models, (clamped_at_the_end, fast), strict=True):
            function(model, x)
            model.weight.data.add_(torch.randn(2, 3, generator=torch.Generator().manual_seed(1)))
        torch.testing.assert_close(kept[0], before)
        torch.testing.assert_close(kept[1], before)
        torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_one_tensor_under_two_names_is_another_version() -> None:
    def moved(a: Tensor, b: Tensor) -> Any:
        y = a * 1
        a.data = b + 1
        return y, b * 2

    fast = stator.compile(moved)
    for same in (False, True, False):
        expected, got = torch.randn(3), torch.empty(3)
        got.copy_(expected)
        others = [t if same else torch.arange(3.0) for t in (expected, got)]
        torch.testing.assert_close(fast(got, others[1]), moved(expected, others[0]))
        torch.testing.assert_close((got, others[1]), (expected, others[0]))
