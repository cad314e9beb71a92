"""Random operators: eager's own numbers where asked for; else eager's distribution, one draw for both passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

Operator = Callable[[Tensor], Tensor]

#: What stays random under a functional form.
OPERATORS: dict[str, Operator] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout in place": lambda x: F.dropout(x * 1, 0.3, inplace=True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x.view(2, -1, 3, 2), 0.4),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, True),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) * x,
    "bernoulli_ of a number": lambda x: torch.empty_like(x).bernoulli_(0.3) * x,
    "bernoulli_ of a tensor": lambda x: torch.empty_like(x).bernoulli_(x.detach().sigmoid()) * x,
    "rand": lambda x: x * torch.rand(x.shape),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn": lambda x: x + torch.randn(x.shape),
    "randn_like": lambda x: x * torch.randn_like(x),
    "randint": lambda x: x * torch.randint(-2, 10, x.shape),
    "randint_like": lambda x: x * torch.randint_like(x, 2, 9),
    "normal": lambda x: x + torch.normal(1.0, 2.0, x.shape),
    "normal of a tensor": lambda x: x * torch.normal(x.detach(), 2.0),
    "normal_": lambda x: x * torch.empty_like(x).normal_(1, 2),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(-1, 2),
    "exponential_": lambda x: x * torch.empty_like(x).exponential_(2.0),
    "geometric_": lambda x: x * torch.empty_like(x).geometric_(0.2),
    "log_normal_": lambda x: x * torch.empty_like(x).log_normal_(0.2, 0.5),
    "cauchy_": lambda x: x * torch.empty_like(x).cauchy_().atan(),
    "random_": lambda x: x * torch.empty_like(x).random_(3, 8),
    "randperm": lambda x: x[torch.randperm(len(x))] * torch.arange(len(x))[:, None],
    "rrelu": lambda x: F.rrelu(x, 0.2, 0.9, training=True),
    "rrelu in place": lambda x: F.rrelu(x * 1, 0.2, 0.9, training=True, inplace=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "several": lambda x: F.dropout(x, 0.5) * torch.rand(x.shape[1]) + F.dropout(x.sin(), 0.5),
}

#: What eager checks in the data, and so only eager draws.
OF_EAGER: dict[str, Operator] = {
    "multinomial": lambda x: x.sum() * torch.multinomial(x.softmax(-1), 3),
    "multinomial with replacement": lambda x: x.sum() * torch.multinomial(x.softmax(-1), 3, replacement=True),
    "poisson": lambda x: x * torch.poisson(x.detach().abs() * 3),
    "normal of two tensors": lambda x: x * torch.normal(x.detach(), x.detach().abs()),
    "normal of a tensor for its width": lambda x: x * torch.normal(1.0, x.detach().abs()),
    "binomial": lambda x: x * torch.binomial((x.detach().abs() * 9).round(), x.detach().sigmoid()),
    "gamma": lambda x: x * torch._standard_gamma(x.detach().exp()),
    "gamma with a gradient": lambda x: torch._standard_gamma(x.exp()),
    "dirichlet": lambda x: x * torch._sample_dirichlet(x.detach().exp()),
}


def compiled(function: Any, **options: Any) -> Any:
    return stator.compile(function, fullgraph=True, options={"strict": True, **options})


def values() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(4, 6, generator=generator).requires_grad_()


def told(function: Operator) -> list[Tensor]:
    """Result and gradient, twice, and what the generator gives afterwards."""
    torch.manual_seed(7)
    seen: list[Tensor] = []
    for _ in range(2):
        x = values()
        out = function(x)
        out.sum().backward()
        assert x.grad is not None
        seen += [out.detach(), x.grad]
    return [*seen, torch.rand(2)]


@pytest.mark.parametrize("name", OPERATORS | OF_EAGER)
def test_eagers_own_numbers(name: str) -> None:
    function = (OPERATORS | OF_EAGER)[name]
    torch.testing.assert_close(told(compiled(function, eager_random=True)), told(function), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OF_EAGER)
def test_what_only_eager_draws_is_drawn_by_its_kernel(name: str) -> None:
    torch.testing.assert_close(told(compiled(OF_EAGER[name])), told(OF_EAGER[name]), rtol=1e-5, atol=1e-5)


def unread(x: Tensor) -> Tensor:
    torch.rand(3)
    F.dropout(x, 0.5)
    chosen = torch.multinomial(x.softmax(-1), 2)
    noise = torch.normal(x.detach(), 1.0)
    return torch.rand(len(x)) + noise.sum(1) * x.sum() + chosen.sum() + torch.rand(len(x))


def test_numbers_that_nobody_reads_are_drawn_in_their_turn() -> None:
    torch.testing.assert_close(told(compiled(unread, eager_random=True)), told(unread), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("eager_random", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.poisson(-x.exp()),
        lambda x: x + torch.multinomial(-x.exp(), 2).sum(),
        lambda x: x if torch.multinomial(-x.exp(), 2) is None else x + 1,
        lambda x: x + torch.normal(x, -x.exp()),
    ],
)
def test_the_kernel_checks_the_data(function: Operator, eager_random: bool) -> None:
    call, x = compiled(function, eager_random=eager_random), values().detach()
    with pytest.raises(RuntimeError) as expected:
        function(x)
    with pytest.raises(RuntimeError) as found:
        call(x)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", OPERATORS)
def test_forward_and_backward_agree(name: str) -> None:
    """The slope along a direction, measured with the same seed, is the gradient's; calls differ, seeds govern."""
    call = compiled(OPERATORS[name])

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(11)
        return call(x).double().sum()

    x, direction = values(), torch.randn(4, 6)
    run(x).backward()
    assert x.grad is not None
    if name not in ("bernoulli", "normal of a tensor"):  # these jump
        with torch.no_grad():
            eager = [float(run(x + sign * 1e-2 * direction)) for sign in (1, -1)]
        slope = float((x.grad.double() * direction).sum())
        assert (eager[0] - eager[1]) / 2e-2 == pytest.approx(slope, rel=0.05, abs=0.05)
    again = values()
    run(again).backward()
    torch.testing.assert_close(again.grad, x.grad)
    first, second = call(x).detach(), call(x).detach()
    assert not torch.equal(first, second)


COUNT = 40_000
#: Operators that draw: the moments of what they draw are eager's.
DRAWN: dict[str, Operator] = {
    "bernoulli": lambda x: torch.empty_like(x).bernoulli_(x.sigmoid()),
    "randint": lambda x: torch.randint(-3, 9, x.shape).float(),
    "randint_like": lambda x: torch.randint_like(x, 2, 9),
    "normal": lambda x: torch.normal(1.0, 2.0, x.shape),
    "uniform": lambda x: torch.empty_like(x).uniform_(-1, 2),
    "exponential": lambda x: torch.empty_like(x).exponential_(2.0),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.3),
    "log_normal": lambda x: torch.empty_like(x).log_normal_(0.2, 0.3),
    "cauchy": lambda x: torch.empty_like(x).cauchy_(0.5, 2.0).atan(),
    "random": lambda x: torch.empty_like(x).random_(3, 8),
    "rrelu": lambda x: F.rrelu(-torch.ones_like(x), 0.2, 0.9, training=True),
    "randperm": lambda x: (torch.randperm(len(x)) / len(x) - torch.arange(len(x)) / len(x)).abs(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_distributions_are_eagers(name: str) -> None:
    torch.manual_seed(5)
    x = torch.randn(COUNT)
    ours, eager = compiled(DRAWN[name])(x).double(), DRAWN[name](x).double()
    assert ours.unique().numel() > 1
    for power in (1, 2, 3):
        a, b = ours**power, eager**power
        sigma = float((a.var() / COUNT + b.var() / COUNT).sqrt())
        assert abs(float(a.mean() - b.mean())) < 5 * sigma
    assert (
        float(ours.min()) == pytest.approx(float(eager.min()), abs=0.2 * float(eager.std()) + 1e-9) or name == "normal"
    )


def test_a_permutation_has_every_number_once() -> None:
    call = compiled(lambda x: torch.randperm(x.numel()))
    found = call(torch.empty(5000))
    assert found.dtype is torch.int64 and torch.equal(found.sort().values, torch.arange(5000))
